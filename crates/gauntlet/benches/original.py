"""The steps of the original, with the libraries it names: jsonschema, html.escape and re.

Reads the inputs that the benchmark in Rust wrote, prints `name<TAB>seconds` of CPU per call.
"""

import html
import json
import re
import sys
import time

import jsonschema

CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
MARKERS = re.compile(r"__system__|<\|im_start\|>|<\|im_end\|>", re.IGNORECASE)


def sanitise(text):
    return MARKERS.sub("", html.escape(CONTROL.sub("", text), quote=True))


def clean(value):
    if isinstance(value, str):
        return sanitise(value)
    if isinstance(value, list):
        return [clean(item) for item in value]
    if isinstance(value, dict):
        return {key: clean(item) for key, item in value.items()}
    return value


def measure(name, work):
    work()
    rounds, spent = 0, 0.0
    start = time.process_time()
    while spent < 0.4:
        work()
        rounds += 1
        spent = time.process_time() - start
    print(f"{name}\t{spent / rounds:.9f}", flush=True)


def errors(validator, instance):
    return sorted(validator.iter_errors(instance), key=lambda error: [str(part) for part in error.path])


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        given = json.load(file)
    for name, text in given["texts"].items():
        measure(name, lambda text=text: sanitise(text))
    arguments = jsonschema.Draft202012Validator(given["input_schema"])
    output = jsonschema.Draft202012Validator(given["output_schema"])
    measure("validation", lambda: errors(arguments, given["arguments"]))
    measure("validation error", lambda: errors(arguments, given["bad_arguments"]))

    def gauntlet():
        errors(arguments, given["arguments"])
        result = json.loads(given["result"])
        errors(output, result["structuredContent"])
        clean(result["structuredContent"])
        clean(result["content"])

    measure("gauntlet", gauntlet)


main()
