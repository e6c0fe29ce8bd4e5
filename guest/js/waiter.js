// Waits in a warm sandbox for its one task: Node.js is started ahead of any request (src/guest/warm/task.c).
//
//     node -r waiter.js /tmp/.cloche/main.js
//
// Reads an order from standard input (src/guest/exec/spawn.h), in front of the program's own input, writes the
// files that come with it, among them the program, and returns: Node.js then runs the program as always, with
// the argv, variables and directory of the order.
'use strict';
const fs = require('fs');
const Module = require('module');

function readWhole(size) {
	const bytes = Buffer.alloc(size);
	for (let at = 0; at < size;) {
		let got;
		try {
			got = fs.readSync(0, bytes, at, size - at, null);
		} catch (error) {
			if (error.code === 'EAGAIN' || error.code === 'EINTR')
				continue;
			throw error;
		}
		// The warm host closed the stream: this task is not needed.
		if (got === 0)
			process.reallyExit(0);
		at += got;
	}
	return bytes;
}

function readBlock() {
	return readWhole(readWhole(4).readUInt32LE(0));
}

// The texts of a block, each ended by NUL.
function* texts(block) {
	for (let at = 0; at < block.length;) {
		const end = block.indexOf(0, at);
		yield block.toString('utf8', at, end);
		at = end + 1;
	}
}

function placeFiles(block) {
	for (let at = 0; at < block.length;) {
		const parts = [];
		for (let i = 0; i < 3; i++) {
			const end = block.indexOf(0, at);
			parts.push(block.toString('utf8', at, end));
			at = end + 1;
		}
		const [path, mode, size] = [parts[0], parseInt(parts[1], 8), parseInt(parts[2], 10)];
		const place = path.startsWith('/run/code/') ? '/var/tmp/.code' : path.slice(0, path.lastIndexOf('/'));
		fs.mkdirSync(place, { recursive: true, mode: 0o755 });
		fs.writeFileSync(path, block.subarray(at, at + size), { mode, flag: 'wx' });
		at += size;
	}
}

// An environment that is set piece by piece costs a call for each variable: only what differs is set.
function setEnvironment(pairs) {
	const wanted = new Map(pairs.map((pair) => {
		const equals = pair.indexOf('=');
		return [pair.slice(0, equals), pair.slice(equals + 1)];
	}));
	for (const name of Object.keys(process.env))
		if (!wanted.has(name))
			delete process.env[name];
	for (const [name, value] of wanted)
		if (process.env[name] !== value)
			process.env[name] = value;
}

// Loads a small module from a file, as the program will be loaded.
function rehearse() {
	const path = '/tmp/.cloche-rehearsal.js';
	fs.writeFileSync(path, 'module.exports = [1].map((x) => `${x}`);\n');
	require(path);
	delete require.cache[path];
	module.children.pop();
	fs.unlinkSync(path);
}

function main() {
	process.umask(0o022);
	// What nearly every program uses is loaded and compiled by now: streams for the output, a first module.
	void process.stdout._handle, process.stderr._handle;
	void console.log, console.error;
	rehearse();
	const order = [...texts(readBlock())];
	const files = readBlock();
	const count = parseInt(order[1], 10);

	setEnvironment(order.slice(2 + count));
	process.chdir(order[0]);
	placeFiles(files);
	// "node", the program's path, its arguments.
	process.argv = [process.execPath, ...order.slice(3, 2 + count)];
	process.execArgv = [];
	delete require.cache[__filename];
	Module._initPaths();
}

// The threads of the program load this file, too.
if (require('worker_threads').isMainThread)
	main();
