"""Holds answers against the daemon's own /openapi.json: status, members and types, none more and none less."""

import json
import re


class Description:
    def __init__(self, document):
        self.schemas = document["components"]["schemas"]
        self.error = document["components"]["responses"]["Error"]
        self.operations = []
        for path, operations in document["paths"].items():
            pattern = "/".join("[^/]*" if part.startswith("{") else re.escape(part)
                               for part in path.split("/"))
            pattern = re.sub(r"\[\^/\]\*$", ".*", pattern) if path.endswith("{rest}") else pattern
            self.operations.append((path.count("{"), re.compile(pattern + "$"), operations))
        self.operations.sort(key=lambda row: row[0])

    def find(self, method, path):
        for _, pattern, operations in self.operations:
            if pattern.match(path):
                return operations.get("get" if method == "HEAD" else method.lower())
        return None

    def complaint(self, method, path, reply):
        """None if the answer is as described, or of no described operation."""
        operation = self.find(method, path.partition("?")[0])
        if not operation or "/ports/" in path:
            return None
        responses = operation["responses"]
        if reply.status < 400 and str(reply.status) not in responses:
            return "status %d is not described" % reply.status
        content = responses.get(str(reply.status), self.error).get("content", {})
        media = (reply.headers.get("Content-Type") or "").partition(";")[0]
        if not reply.body:
            return None
        if media not in content:
            return "%s is not described" % media
        if media != "application/json":
            return None
        return self.differs(json.loads(reply.body), content[media]["schema"], "$")

    def differs(self, value, schema, where):
        if "$ref" in schema:
            return self.differs(value, self.schemas[schema["$ref"].rpartition("/")[2]], where)
        if not schema:
            return None
        if value is None:
            return None if schema.get("nullable") else where + " is null"
        for inner in schema.get("allOf", ()):
            return self.differs(value, inner, where)
        if "anyOf" in schema:
            found = [self.differs(value, inner, where) for inner in schema["anyOf"]]
            return None if None in found else found[0]
        python = {"string": str, "integer": int, "number": (int, float), "boolean": bool,
                  "object": dict, "array": list}[schema["type"]]
        if not isinstance(value, python) or (isinstance(value, bool) and python is not bool):
            return "%s is %s, not %s" % (where, type(value).__name__, schema["type"])
        if schema["type"] == "array":
            return next(filter(None, (self.differs(v, schema["items"], where + "[]") for v in value)),
                        None)
        properties = schema.get("properties")
        if schema["type"] != "object" or properties is None:
            return None
        for name in schema.get("required", ()):
            if name not in value:
                return "%s.%s is missing" % (where, name)
        for name, member in value.items():
            if name not in properties:
                return "%s.%s is not described" % (where, name)
            found = self.differs(member, properties[name], "%s.%s" % (where, name))
            if found:
                return found
        return None
