"""tests/door/forms.py - schemas like those that applications send, and a model's texts for them.

forms.py write SEED COUNT INPUT: lines for `lockstep batch`, two per schema (temperatures 1 and 2), with random schemas.
forms.py check INPUT OUTPUT: every complete text is JSON, and valid according to python's jsonschema, if installed. TAP.
"""
import json
import random
import sys

NAMES = ["id", "name", "value", "created_at", "the_little_dragon", "x y", "näme", 'q"t', "type", "items", "a", "ab", "€", "line\n"]
PATTERNS = ["^[a-z]+$", r"^\d{3}-\d{4}$", "a", "^(foo|bar)+$", "^[^ab]*$", "[A-Z]{2}$", r"^\S+@\S+$", r"^(?:[1-9]\d*|0)$",
            "^.{2,5}$", "^x?y*z+$", r"^[\w.-]+$", "^$|^ok$"]
FORMATS = ["date", "date-time", "uuid", "email", "ipv4", "time", "uri", "hostname", "int32", "a-format-of-its-own"]
NUMBERS = [0, 1, -1, 5, 10, 100, -17, 0.5, 2.25, -0.001, 1e3, 99.99, 123456, -0.25, 7]
VALUES = [None, True, False, 0, -3, 1.5, "x", 'a"b\\', "é\n", [1, "a"], {"k": [None]}, {}]
# Forms that are refused by name before anything is generated (docs/protocol.md).
REFUSED = ["not supported", "no text matches this form", "nest more than 100 levels deep"]
TOKENS = 160


class Maker:
    """Schemas from one seed, with keywords as frequent as in public collections."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def chance(self, share):
        return self.random.random() < share

    def text(self):
        schema = {"type": "string"}
        if self.chance(.2):
            schema["minLength"] = self.random.randint(0, 5)
        if self.chance(.6):
            schema["maxLength"] = self.random.randint(schema.get("minLength", 0), 25)
        if self.chance(.2):
            schema["pattern"] = self.random.choice(PATTERNS)
        elif self.chance(.2):
            schema["format"] = self.random.choice(FORMATS)
        return schema

    def number(self):
        schema = {"type": self.random.choice(["integer", "number"])}
        low, high = sorted(self.random.sample(NUMBERS, 2))
        if self.chance(.4):
            schema[self.random.choice(["minimum", "exclusiveMinimum"])] = low
        if self.chance(.4):
            schema[self.random.choice(["maximum", "exclusiveMaximum"])] = high
        return schema

    def object(self, depth):
        names = self.random.sample(NAMES, self.random.randint(0, 5))
        schema = {"type": "object", "properties": {name: self.schema(depth - 1) for name in names},
                  "required": self.random.sample(names, self.random.randint(0, len(names)))}
        if self.chance(.5):
            schema["additionalProperties"] = False
        elif self.chance(.2):
            schema["additionalProperties"] = self.schema(depth - 1)
        if self.chance(.07):
            schema["patternProperties"] = {self.random.choice(["^x-", "^zz", "[0-9]$"]): self.schema(depth - 1)}
        if self.chance(.05):
            schema["maxProperties"] = self.random.randint(1, 5)
        if self.chance(.05):
            schema["minProperties"] = self.random.randint(0, 2)
        return schema

    def array(self, depth):
        schema = {"type": "array", "items": self.schema(depth - 1)}
        if self.chance(.3):
            schema["minItems"] = self.random.randint(0, 3)
        if self.chance(.6):
            schema["maxItems"] = self.random.randint(schema.get("minItems", 0), 4)
        return schema

    def several(self, depth):
        kind = self.random.randrange(4)
        if kind == 0:
            return {"anyOf": [self.schema(depth - 1) for _ in range(self.random.randint(1, 3))]}
        if kind == 1:  # of which one text is never two
            return {"oneOf": [self.text(), self.number(), {"type": "null"}]}
        if kind == 2:
            return {"allOf": [self.object(depth - 1), self.object(depth - 1)]}
        return {"allOf": [self.number(), self.number()]}

    def schema(self, depth):
        simple = [self.text, self.text, self.number, lambda: {"type": self.random.choice(["boolean", "null"])},
                  lambda: {"enum": self.random.sample(VALUES, self.random.randint(1, 5))},
                  lambda: {"const": self.random.choice(VALUES)}, lambda: {"description": "anything"},
                  lambda: {"type": self.random.sample(["string", "integer", "null", "boolean", "number"], 2)}]
        nested = [self.object, self.object, self.array, self.several, lambda _: {"$ref": "#/$defs/" + self.random.choice("pq")}]
        if depth <= 0 or self.chance(.5):
            return self.random.choice(simple)()
        return self.random.choice(nested)(depth)

    def whole(self):
        schema = self.object(3) if self.chance(.6) else self.schema(3)
        schema["$defs"] = {"p": self.schema(1), "q": self.object(1)}
        return schema


def write(seed, count, path):
    maker = Maker(int(seed))
    with open(path, "w", encoding="utf-8") as out:
        for i in range(int(count)):
            schema = maker.whole()
            for temperature in (1, 2):
                line = {"id": f"{i}-{temperature}", "prompt": "Once", "max_tokens": TOKENS, "temperature": temperature, "seed": i,
                        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}
                out.write(json.dumps(line) + "\n")


def read(path):
    with open(path, encoding="utf-8") as lines:
        return {line["id"]: line for line in map(json.loads, lines)}


def validator():
    try:
        import jsonschema
    except ImportError:
        return None
    valid = jsonschema.Draft202012Validator
    return lambda schema, value: valid(schema, format_checker=valid.FORMAT_CHECKER).validate(value)


def report(number, bad, what, skip=""):
    for text in bad[:5]:
        print("# " + text.replace("\n", " ")[:600])
    print(f"{'not ' if bad else ''}ok {number} - {what}{skip}")


def check(asked, answered):
    asked, answered, validate = read(asked), read(answered), validator()
    ends = {"stop": 0, "length": 0, "refused": 0}
    lost, broken, invalid = [], [], []
    for name, line in asked.items():
        answer, schema = answered.get(name, {}), line["response_format"]["json_schema"]["schema"]
        error, text = answer.get("error"), answer.get("text")
        if error and any(part in json.dumps(error) for part in REFUSED):
            ends["refused"] += 1
        elif error or answer.get("finish_reason") not in ends:
            lost.append(f"{json.dumps(schema)}: {json.dumps(answer)}")
        else:
            ends[answer["finish_reason"]] += 1
        if error or answer.get("finish_reason") != "stop":
            continue
        try:
            value = json.loads(text)
        except ValueError as why:
            broken.append(f"{json.dumps(schema)}: {text}: {why}")
            continue
        try:
            if validate is not None:
                validate(schema, value)
        except Exception as why:  # whatever jsonschema raises
            invalid.append(f"{text}: {why}: {json.dumps(schema)}")
    print(f"# {ends['stop']} texts were complete, {ends['length']} were cut off, {ends['refused']} were refused")
    report(1, lost, f"{len(asked)} requests with a schema are answered, or refused by name")
    report(2, broken, "complete texts are JSON")
    report(3, invalid, "and valid", "" if validate is not None else " # SKIP no python package jsonschema")
    few = ends["stop"] * 2 < len(asked) or ends["refused"] * 8 > len(asked)
    report(4, [json.dumps(ends)] if few else [], "most are complete, and few are refused")
    print("1..4")
    return 1 if lost or broken or invalid or few else 0


if __name__ == "__main__":
    sys.exit(write(*sys.argv[2:]) if sys.argv[1] == "write" else check(*sys.argv[2:]))
