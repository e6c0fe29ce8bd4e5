"""/openapi.json is of this very daemon; /metrics is what Prometheus reads."""

import re
import unittest

import harness

ROUTES = """
POST /v1/run
POST /v1/run/batch
POST GET DELETE /v1/sandboxes
GET PATCH DELETE /v1/sandboxes/{id}
POST /v1/sandboxes/{id}/exec
GET /v1/sandboxes/{id}/execs
GET DELETE /v1/sandboxes/{id}/execs/{eid}
GET /v1/sandboxes/{id}/execs/{eid}/stream
POST /v1/sandboxes/{id}/execs/{eid}/stdin
POST /v1/sandboxes/{id}/execs/{eid}/close_stdin
POST /v1/sandboxes/{id}/execs/{eid}/signal
POST /v1/sandboxes/{id}/execs/{eid}/resize
GET PUT DELETE /v1/sandboxes/{id}/files
POST /v1/sandboxes/{id}/files/mkdir
POST /v1/sandboxes/{id}/files/move
POST /v1/sandboxes/{id}/files/chmod
POST /v1/sandboxes/{id}/files/search
GET PUT /v1/sandboxes/{id}/files/tar
GET /v1/sandboxes/{id}/files/watch
POST /v1/sandboxes/{id}/start
POST /v1/sandboxes/{id}/stop
POST /v1/sandboxes/{id}/restart
POST /v1/sandboxes/{id}/pause
POST /v1/sandboxes/{id}/resume
POST /v1/sandboxes/{id}/snapshot
POST /v1/sandboxes/{id}/fork
POST /v1/sandboxes/{id}/timeout
GET /v1/sandboxes/{id}/wait
GET /v1/sandboxes/{id}/stats
GET /v1/sandboxes/{id}/health
GET /v1/sandboxes/{id}/logs
GET PUT /v1/sandboxes/{id}/network
POST /v1/sandboxes/{id}/network/answer
GET /v1/events
GET /v1/snapshots
DELETE /v1/snapshots/{id}
GET /v1/snapshots/{id}/tar
PUT /v1/snapshots/{id}/tar
GET PUT POST DELETE /v1/sandboxes/{id}/ports/{port}/{rest}
GET /v1/tokens
GET /v1/audit
GET /v1/policies
GET /v1/images
GET /v1/volumes
GET /healthz
GET /metrics
GET /openapi.json
"""


class OpenApi(harness.Case):
    def test_every_route_is_there(self):
        paths = self.d.get("/openapi.json").json["paths"]
        for line in ROUTES.split("\n"):
            *methods, path = line.split() or [""]
            for method in methods:
                self.assertIn(path, paths)
                self.assertIn(method.lower(), paths[path], path)

    def test_every_described_route_answers(self):
        """With an id that is none, nothing is 405, and nothing that needs one is 200."""
        paths = self.d.get("/openapi.json").json["paths"]
        for pattern, operations in paths.items():
            path = re.sub(r"\{\w+\}", "zzzz", pattern)
            for method in operations:
                if path == "/v1/events" or (method == "delete" and "{" not in pattern) or (
                    method == "put" and pattern == "/v1/snapshots/{id}/tar"  # a name may be new
                ):
                    continue
                reply = self.d.request(method.upper(), path, b"" if method != "get" else None)
                self.assertNotEqual(reply.status, 405, (method, path))
                if "{" in pattern:
                    self.assertGreaterEqual(reply.status, 400, (method, path, reply))

    def test_parameters(self):
        """What stands in a path or a query is described, and nothing else is taken."""
        paths = self.d.get("/openapi.json").json["paths"]
        for pattern, operations in paths.items():
            for method, operation in operations.items():
                where = {p["name"]: p["in"] for p in operation["parameters"]}
                self.assertEqual(set(re.findall(r"\{(\w+)\}", pattern)),
                                 {name for name in where if where[name] == "path"})
                if "{" in pattern or method != "get" or operation.get("security") == []:
                    continue
                reply = self.d.get(pattern + "?metdata=a%3Db")
                self.assertError(reply, 400, "invalid", "metdata")
        listed = paths["/v1/sandboxes"]["get"]["parameters"]
        self.assertEqual([p["name"] for p in listed], ["metadata", "state", "limit", "cursor"])

    def test_answers_are_described(self):
        """Each operation has a name of its own and an answer (the harness holds real ones against it)."""
        doc = self.d.get("/openapi.json").json
        names = []
        for path, operations in doc["paths"].items():
            for method, operation in operations.items():
                names.append(operation["operationId"])
                self.assertIn("4XX", operation["responses"])
                if not path.startswith("/v1/tokens") or method == "get":
                    self.assertGreater(len(operation["responses"]), 2, (method, path))
        self.assertEqual(len(names), len(set(names)))
        for name, schema in doc["components"]["schemas"].items():
            for ref in re.findall(r"#/components/schemas/(\w+)", repr(schema)):
                self.assertIn(ref, doc["components"]["schemas"], name)

    def test_bodies_say_their_fields(self):
        doc = self.d.get("/openapi.json").json
        body = doc["paths"]["/v1/run"]["post"]["requestBody"]["content"]["application/json"]
        schema = body["schema"]
        self.assertFalse(schema["additionalProperties"])
        for name in ("cmd", "code", "language", "files", "capture", "memory", "timeout", "env"):
            self.assertIn(name, schema["properties"])
        for name in ("mount", "workspace", "policy", "tools"):
            self.assertNotIn(name, schema["properties"])
        create = doc["paths"]["/v1/sandboxes"]["post"]["requestBody"]["content"]
        properties = create["application/json"]["schema"]["properties"]
        self.assertEqual(properties["level"]["enum"], ["container", "process", "vm"])
        # Not what is true of `cloche run` only.
        for name, field in properties.items():
            self.assertNotRegex(field["description"], r"director.*\(default\)|\((1G|256|1024)|--tty", name)
        self.assertNotIn("directory", properties["image"]["description"])

    def test_every_field_is_known_to_the_validator(self):
        """A wrong value names the field: so it is known, and checked."""
        doc = self.d.get("/openapi.json").json
        schema = doc["paths"]["/v1/sandboxes"]["post"]["requestBody"]["content"]
        for name in schema["application/json"]["schema"]["properties"]:
            reply = self.d.post("/v1/sandboxes", {name: {"nested": {"x": 1}}})
            if reply.status == 201:
                self.fail("%s took an object" % name)
            self.assertEqual(reply.error.get("field"), name, reply)
            self.assertNotIn("unknown field", reply.error["message"])

    def test_metrics(self):
        self.d.post("/v1/run", {"cmd": ["true"]})
        text = self.d.get("/metrics").body.decode()
        for line in text.splitlines():
            if not line.startswith("#"):
                self.assertRegex(line, r'^[a-z_]+(\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\})? [0-9.e+]+$')
        for name in ("cloche_sandboxes{", "cloche_create_seconds_bucket{", "cloche_errors_total",
                     "cloche_exec_seconds_bucket{", "cloche_denials_total{", "cloche_pool_hits"):
            self.assertIn(name, text)
        counts = re.findall(r'cloche_run_seconds_bucket\{le="[^"]+"\} (\d+)', text)
        self.assertEqual(counts, sorted(counts, key=int))

    def test_lists(self):
        self.assertIn("host", [i["name"] for i in self.d.get("/v1/images").json["images"]])
        self.assertEqual(self.d.get("/v1/volumes").json["volumes"], [])
        self.assertTrue(self.d.get("/v1/policies").json["policies"])


if __name__ == "__main__":
    unittest.main()
