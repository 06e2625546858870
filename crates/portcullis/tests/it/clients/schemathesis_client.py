"""Calls every operation of an OpenAPI document with what Schemathesis makes of it, right and wrong.

Usage: schemathesis_client.py DOCUMENT BASE_URL TOKEN EXAMPLES
The last line of the output is JSON: how many operations and requests there were, and every answer with status 500 or that
is no JSON.
"""

import json
import sys

import hypothesis
import requests
import schemathesis
from schemathesis.generation import GenerationMode

path, base, token, examples = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
with open(path) as file:
    document = json.load(file)
schema = schemathesis.openapi.from_dict(document)
seen = {"operations": 0, "requests": 0, "statuses": {}, "failures": []}
http = requests.Session()
http.headers.update({"Authorization": f"Bearer {token}", "Content-Type": "application/json"})


def send(case):
    body = case.body
    if isinstance(body, schemathesis.core.NotSet):
        data = b""
    elif isinstance(body, bytes):
        data = body
    else:
        data = json.dumps(body).encode()
    response = http.request(case.method, base + case.formatted_path, data=data, timeout=60)
    seen["requests"] += 1
    status = str(response.status_code)
    seen["statuses"][status] = seen["statuses"].get(status, 0) + 1
    failure = None
    if response.status_code == 500 or response.status_code in (401, 502, 503, 504):
        failure = status
    else:
        try:
            response.json()
        except ValueError:
            failure = "not JSON"
    if failure and len(seen["failures"]) < 20:
        told = {"operation": case.formatted_path, "why": failure, "body": repr(data)[:300], "answer": response.text[:300]}
        seen["failures"].append(told)


for found in schema.get_all_operations():
    operation = found.ok()
    seen["operations"] += 1
    for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
        try:
            strategy = operation.as_strategy(generation_mode=mode)
        except Exception:  # Nothing can be wrong about an operation that takes anything.
            continue

        @hypothesis.settings(
            max_examples=examples,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[hypothesis.Phase.generate],
            suppress_health_check=list(hypothesis.HealthCheck),
        )
        @hypothesis.given(case=strategy)
        def calls(case):
            send(case)

        try:
            calls()
        except hypothesis.errors.Unsatisfiable:
            pass

print(json.dumps(seen))
