#!/usr/bin/env python3
"""Fixtures of tests/unit/test_template.c: jinja2 3.1.6's output of small templates (pip: jinja2==3.1.6).

    make_template_fixtures.py      -> fixtures/template/cases.json

Templates are rendered as transformers' apply_chat_template does: immutable sandbox, trim_blocks, lstrip_blocks, loop controls, its own
tojson, raise_exception, strftime_now and {% generation %}. "rendered" is null if jinja2 refuses to parse or to render."""
import datetime
import json
import os

from jinja2 import nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = os.path.dirname(os.path.abspath(__file__))
NOW = 1700000000

VARIABLES = {
    "messages": [{"role": "system", "content": " Be brief. "}, {"role": "user", "content": "Hello <b> \"you\" & 'me'\n\u00e4\u4f60\U0001f600"},
                 {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHi", "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1, "y": [True, None, 1.5]}}}]}],
    "tools": [{"type": "function", "function": {"name": "f", "description": "does \u00fc", "parameters": {"type": "object", "properties": {"b": {"type": "string"}, "a": {"type": ["integer", "null"]}}, "required": ["b"]}}}],
    "text": "abc \u00e4\u4f60\U0001f600 xyz", "words": "  one two\tthree\n four  ", "empty": "", "zero": 0, "n": 7, "negative": -7, "x": 2.5, "big": 1e20, "small": 1e-7,
    "yes": True, "no": False, "nothing": None, "list": [3, 1, 2], "names": ["b", "A", "c", "a"], "nested": [[1, "a"], {"k": None}],
    "dict": {"b": 1, "a": 2, "items": 3, "z": {"y": "deep"}}, "people": [{"n": "x", "a": 3, "on": True}, {"n": "y", "a": 1}, {"n": "z", "a": 2, "on": False}],
    "add_generation_prompt": True, "bos_token": "<s>", "lines": "a\n\n  b\r\nc\n", "csv": "a,b,,c",
}

# By construct: (name, [templates])
CASES = {
    "whitespace": [
        "a\n", "a\n\n", "\n", "", "a\r\nb\rc\n\n", "  {% if yes %}\n  x\n  {% endif %}\ny", "  {%+ if yes %}\n  x\n  {%+ endif %}\ny", "a  {%- if yes -%}  \n b \n {%- endif -%} \n c",
        "a {{- n -}} b", "a {{ n }}\nb", "  {{ n }}\n  {{ n }}\n", "a {# c #}\nb", "a\n  {# c #}\n  b", "a\n  {#- c -#}\n  b", "{# a #}{# b #}\n\nx", "x {%- set a = 1 %}\n\n y",
        "{% set a = 1 +%}\ny", "\t{% set a = 1 %}\ny", "x{% set a = 1 %} \ny", "{{ n -}}\n\n  {% set a = 1 %}\nz", "{{ '{{' }}{{ \"%}\" }}{{ '#}' }}", "{% raw %}{{ n }}{% if %}{% endraw %}x",
        "a\n  {%- raw -%}  \n x {{ \n {%- endraw -%} \n b", "a\n {% raw %}\n x\n {% endraw %}\nb", "{{ {'a': {'b': 1}}}}", "{{+1}}", "{{-1}}", "a {{-1 }}", "{%- if yes %}x{%- endif %}", "\u00a0{%- if yes %}x{% endif %}",
        "a\n\u00a0 {% if yes %}x{% endif %}", "{#}", "{##}x", "{#-#}x", " {#+ x +#}\ny", "{ {% raw %}%{% endraw %}", "a{%", "a{{ 1", "{% if yes %}", "{% endif %}", "{{ 1 }", "{% raw %}x",
    ],
    "literals": [
        "{{ 'a\\n\\t\\\\\\'\\\"b' }}", "{{ 'a\\x41\\u00e4\\U0001f600\\101\\q' }}", "{{ 'a' 'b' \"c\" }}", "{{ 1_000 }} {{ 1.5 }} {{ 1e3 }} {{ 1.5e-3 }} {{ 1E20 }} {{ 0.1 }}", "{{ true }}{{ True }}{{ false }}{{ none }}{{ None }}",
        "{{ [1, 'a', none, true, 1.0] }}", "{{ (1, 2) }}{{ (1,) }}{{ () }}{{ 1, 2 }}", "{{ {'k': None, 1: 'x', 'n': {'m': []}} }}", "{{ [[]] }}{{ {} }}{{ [1,] }}{{ {'a': 1,} }}", "{{ \"it's\" }}{{ [\"it's\"] }}{{ ['\"'] }}{{ ['\"\\''] }}", "{{ ['\\n\\x00\\x7f\\u200b\\u00e4\\u4f60\\U0001f600\\\\'] }}",
        "{{ 'a\\\nb' }}", "{{ 9223372036854775807 }}", "{{ 'a\nb' }}", "{{ 'unended }}", "{{ 1 2 }}", "{{ $ }}", "{{ }}", "{{ 1.e }}", "{{ list.0 }}{{ nested.0.1 }}",
    ],
    "numbers": [
        "{{ big }} {{ small }} {{ x }} {{ 1e16 }} {{ 123456789012345680.0 }} {{ 1e15 }} {{ 0.0001 }} {{ 0.00001 }} {{ 100.0 }} {{ -0.0 }} {{ 1/3 }}", "{{ 7 / 2 }} {{ 6 / 2 }} {{ 7 // 2 }} {{ negative // 2 }} {{ negative % 3 }} {{ 7 % -3 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 2.0 ** 2 }}",
        "{{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 1 + 2 * 3 - 4 }} {{ (1 + 2) * 3 }} {{ -n }} {{ +n }} {{ - -n }} {{ -x }}", "{{ 1 / 0 }}", "{{ 1 % 0 }}", "{{ true + 1 }} {{ true * 3 }} {{ -true }}", "{{ 1 == 1.0 }} {{ 1 == true }} {{ 0 == false }} {{ '1' == 1 }} {{ 2 ** 3 ** 2 }} {{ -2 ** 2 }}",
        "{{ n | float }} {{ '3.7' | int }} {{ '12' | int }} {{ 'x' | int }} {{ 'x' | int(5) }} {{ 'x' | float }} {{ 3.9 | int }} {{ none | int }} {{ ' 4 ' | int }} {{ '1e2' | float }} {{ true | int }}", "{{ 2.5 | round }} {{ 3.5 | round }} {{ 2.567 | round(2) }} {{ 2.1 | round(0, 'ceil') }} {{ 2.9 | round(method='floor') }} {{ 5 | round }}", "{{ negative | abs }} {{ -2.5 | abs }} {{ (-2.5) | abs }}",
        "{{ 'a' + 1 }}", "{{ 1 + 'a' }}", "{{ none + 1 }}", "{{ -'a' }}", "{{ 1 < 'a' }}",
    ],
    "operators": [
        "{{ 'a' ~ 1 ~ none ~ 1.0 ~ true ~ missing }}", "{{ 'ab' * 3 }}|{{ 2 * 'ab' }}|{{ 'ab' * 0 }}|{{ 'ab' * -1 }}", "{{ [1] + [2] }} {{ [0] * 3 }} {{ (1,) + (2,) }}", "{{ [1] + (2,) }}", "{{ 'a' < 'b' }} {{ 'a' < 'B' }} {{ '\u00e4' > 'z' }} {{ [1, 2] < [1, 3] }} {{ 1 < 2 < 3 }} {{ 3 > 2 > 2 }} {{ 1 < 3 > 2 == 2 }} {{ 1 <= 1.5 >= 1 }}",
        "{{ 1 in [1, 2] }} {{ 'a' in 'abc' }} {{ '' in 'abc' }} {{ 'k' in {'k': 1} }} {{ 3 not in list }} {{ 'x' not in 'abc' }} {{ not 1 in [1] }} {{ none in [none] }}", "{{ 1 in missing }} {{ 'a' in missing }}", "{{ missing in 'abc' }}", "{{ 1 in 'abc' }}", "{{ 1 in 5 }}", "{{ not yes }} {{ not not yes }} {{ yes and 'a' }} {{ no and 'a' }} {{ '' or 'b' }} {{ 'a' or 'b' }} {{ yes and no or 'c' }} {{ not no and yes }}",
        "{{ 'a' if yes else 'b' }}{{ 'a' if no else 'b' }}{{ 'a' if no }}|{{ 1 if no else 2 if no else 3 }}", "{{ ('a' if no) is defined }}", "{{ none == none }} {{ none == missing }} {{ missing == other }} {{ missing != other }} {{ none == false }} {{ '' == missing }}", "{{ [1, [2]] == [1, [2]] }} {{ {'a': 1, 'b': 2} == {'b': 2, 'a': 1} }} {{ (1,) == [1] }} {{ (1 > 0) != (2 > 1) }}",
        "{{ 1 if yes else missing.foo.bar }}", "{{ 'x' ~ ('a' if no) ~ 'y' }}", "{{ n == 7 and x == 2.5 }}", "{{ n is defined and n > 3 and not missing }}", "{{ list[0] + list[-1] }}", "{% if 1 if yes %}{% endif %}", "{{ a = 1 }}", "{{ 1 is }}", "{{ (1 }}", "{{ [1 }}", "{{ 'x' 1 }}", "{{ yes and }}", "{{ n.items.foo }}",
    ],
    "undefined": [
        "{{ missing }}|{{ missing | length }}|{{ missing | default('d') }}|{{ missing or 'o' }}|{{ not missing }}", "{% for a in missing %}x{% else %}none{% endfor %}", "{{ missing.foo }}", "{{ missing['foo'] }}", "{{ missing + 'a' }}", "{{ 'a' + missing }}", "{{ missing() }}", "{{ missing < 1 }}", "{{ dict.missing }}|{{ dict['missing'] }}|{{ dict.missing is defined }}", "{{ dict.missing.foo }}", "{{ list[9] }}|{{ list.foo }}|{{ text.foo }}|{{ n.foo }}|{{ nothing.foo }}|{{ nothing['foo'] }}|{{ list['a'] }}",
        "{{ [missing] }}", "{{ missing | tojson }}", "{{ missing is sequence }} {{ missing is iterable }} {{ missing is string }} {{ missing is mapping }} {{ missing is none }} {{ missing is number }} {{ missing is callable }}", "{{ missing | upper }}|{{ missing | trim }}|{{ missing | list }}|{{ missing | join(',') }}|{{ missing | string }}|{{ missing | first }}|{{ missing | last }}", "{{ nothing | length }}", "{{ n | length }}", "{{ missing[1:] }}", "{{ missing | items | list }}", "{{ nothing | items | list }}", "{{ missing | map('upper') | list }}", "{{ nothing | selectattr('a') | list }}{{ nothing | map('upper') | list }}", "{{ missing.x is defined }}", "{{ missing | default }}|{{ nothing | default('d') }}|{{ nothing | default('d', true) }}|{{ '' | d('e', boolean=true) }}|{{ missing | default(default_value='z') }}",
    ],
    "strings": [
        "{{ text[1:] }}|{{ text[:-1] }}|{{ text[-3:] }}|{{ text[::-1] }}|{{ text[4:7] }}|{{ text[::2] }}|{{ text[10:2:-2] }}|{{ text[-100:100] }}|{{ text[5] }}|{{ text[-1] }}|{{ text[99] }}|{{ text[:] }}|{{ text[3:1] }}", "{{ text | length }} {{ text | upper }} {{ 'ABC\u00c4' | lower }} {{ 'hELLO wORLD' | capitalize }} {{ 'hello wORLD foo-bar (baz' | title }} {{ '\u00df' | upper }}", "{{ words | trim }}|{{ words.strip() }}|{{ words.lstrip() }}|{{ words.rstrip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'xyaxy'.lstrip('yx') }}|{{ 'abc' | trim('ac') }}|{{ '\u2003\u00a0x\u0085\x1c'.strip() }}",
        "{{ words.split() }} {{ words.split(none, 1) }} {{ csv.split(',') }} {{ csv.split(',', 1) }} {{ csv.split(',', maxsplit=2) }} {{ ''.split() }} {{ ''.split(',') }} {{ csv.rsplit(',', 1) }} {{ 'a--b'.split('--')[-1] }}", "{{ csv.split('') }}", "{{ 'a<t>b</t>c'.split('<t>')[-1].split('</t>')[0].strip('\\n') }}", "{{ text.startswith('abc') }} {{ text.endswith('xyz') }} {{ text.startswith(('q', 'a')) }} {{ text.startswith('') }} {{ text.endswith(()) }}", "{{ 'aaa'.replace('a', 'b') }} {{ 'aaa'.replace('a', 'b', 2) }} {{ 'aaa' | replace('a', 'bb') }} {{ 'ab'.replace('', '-') }} {{ 'abc' | replace('b', '') }} {{ 'aXa' | replace('a', 1) }} {{ 'ab'.replace('', '-', 2) }} {{ ''.replace('', 'x') }}",
        "{{ ', '.join(['a', 'b']) }} {{ ''.join([]) }} {{ '-'.join('abc') }} {{ ','.join(dict) }}", "{{ ','.join([1]) }}", "{{ 'hello world'.title() }} {{ \"it's a x1y\".title() }} {{ 'aBC'.capitalize() }} {{ 'aB'.upper() }} {{ 'aB'.lower() }}", "{{ 'abcabc'.find('c') }} {{ 'abc'.find('x') }} {{ 'abcabc'.rfind('c') }} {{ 'abcabc'.count('b') }} {{ '\u4f60\u597dx'.find('x') }}", "{{ 'a=b=c'.partition('=') }} {{ 'abc'.partition('=') }} {{ 'a=b=c'.rpartition('=') }} {{ 'abc'.rpartition('=') }}", "{{ 'abc'.removeprefix('a') }}{{ 'abc'.removesuffix('c') }}{{ 'abc'.removeprefix('x') }}", "{{ '12'.isdigit() }} {{ 'ab'.isalpha() }} {{ 'a1'.isalnum() }} {{ ' '.isspace() }} {{ ''.isdigit() }} {{ 'a b'.isalpha() }}", "{{ lines.splitlines() }} {{ lines | indent }}|{{ lines | indent(2, true) }}|{{ lines | indent('> ', first=true, blank=true) }}|{{ 'a' | indent }}",
        "{% for c in text %}[{{ c }}]{% endfor %}", "{{ text | list }}", "{{ 'abc' | reverse }} {{ 'abc' | first }} {{ 'abc' | last }} {{ '' | first }}", "{{ 'one two  three' | wordcount }}", "{{ 5 | string + 'a' }} {{ none | string }} {{ 'a' | safe }}", "{{ text.nosuch() }}", "{{ 'abc'[1.5] }}", "{{ 'abc'[::0] }}", "{{ 'abc'['a':] }}",
    ],
    "formats": [
        "{{ '%s and %s' | format(n, text) }}|{{ '%s' | format(missing) }}|{{ '%s%%' | format(x) }}|{{ 'a' | format }}|{{ '%s' | format(list) }}|{{ '%s' | format(none) }}|{{ '%(a)s-%(b)d' | format(a='x', b=3) }}", "{{ '%d %i %5d|%-5d|%05d|%+d|% d|%x|%X' | format(n, negative, n, n, n, n, n, 255, 255) }}", "{{ '%f %.2f %8.3f|%-8.1f|%08.2f|%+.0f' | format(x, x, x, x, x, x) }} {{ '%f' | format(3) }}", "{{ '%5s|%-5s|%.2s|%5.1s' | format('abc', 'abc', '你好x', 'abc') }}", "{{ '%05d' | format(negative) }} {{ '%-05d|' | format(n) }} {{ '%d' | format(true) }} {{ '%+5d' | format(n) }}",
        "{{ '%s %s' | format(1) }}", "{{ '%s' | format(1, 2) }}", "{{ '%d' | format('a') }}", "{{ '%q' | format(1) }}", "{{ '%' | format(1) }}", "{{ '%(a)s' | format(b=1) }}", "{{ '%s' | format(1, a=2) }}", "{{ '%x' | format(1.5) }}", "{{ 'a' | format(1) }}", "{{ '%(a' | format(a=1) }}", "{{ n | format }}",
        "{{ '{}{}'.format(n, text) }}|{{ '{0}{1}{0}'.format('a', 'b') }}|{{ '{a}-{b}'.format(a=1, b='x') }}|{{ '{{{}}}'.format(1) }}|{{ '{} {} {} {}'.format(none, true, x, list) }}|{{ '{}'.format(missing) }}|{{ 'x'.format(1) }}", "{{ '{i:d}|{i:5d}|{i:<5}|{i:^5}|{i:05d}|{i:+d}|{i:x}|{i:X}|{i:*>6}|{i:=+6}|{i: }'.format(i=n) }}", "{{ '{:.2f}|{:8.3f}|{:<8.1f}|{:08.2f}|{:+.0f}|{:f}|{:}|{:10}|{:.1f}'.format(x, x, x, x, x, n, x, x, -0.04) }}", "{{ '{:5}|{:>5}|{:^5}|{:你<5}|{:.2}|{:5.1s}|{:s}'.format('abc', 'abc', 'ab', 'abc', 'abc', 'abc', 'abc') }}", "{{ '{:d} {:5}|'.format(true, true) }} {{ '{:=5}|{:<05}|{:-}'.format(negative, n, n) }} {{ '{:-^9}'.format('a') }}",
        "{{ '{}'.format() }}", "{{ '{'.format(1) }}", "{{ '}'.format(1) }}", "{{ '{a}'.format(b=1) }}", "{{ '{1}'.format(1) }}", "{{ '{:d}'.format('a') }}", "{{ '{:5}'.format(none) }}", "{{ '{:d}'.format(1.5) }}", "{{ '{0}{}'.format(1, 2) }}", "{{ '{:q}'.format(1) }}", "{{ '{:=5}'.format('a') }}", "{{ '{:.2d}'.format(1) }}", "{{ '{:s}'.format(1) }}", "{{ '{:5}'.format(missing) }}", "{{ '{:5}'.format(list) }}", "{{ '{:.}'.format(x) }}", "{{ '{:+}'.format('a') }}", "{{ '{}{0}'.format(1, 2) }}",
    ],
    "lists": [
        "{{ list[1:] }} {{ list[:-1] }} {{ list[::-1] }} {{ list[-1] }} {{ list[0] }} {{ list[5:] }} {{ list[-2:] }} {{ list[::2] }} {{ (1, 2, 3)[1:] }} {{ list[1:][0] }}", "{{ list | length }} {{ list | count }} {{ list | first }} {{ list | last }} {{ [] | first }} {{ list | join }} {{ list | join(', ') }} {{ list | sort }} {{ list | sort(reverse=true) }} {{ names | sort }} {{ names | sort(case_sensitive=true) }}", "{{ people | sort(attribute='a') | map(attribute='n') | join }} {{ people | map(attribute='on', default='?') | list }} {{ people | map(attribute='a') | sum }} {{ people | sum(attribute='a') }} {{ list | sum(start=10) }} {{ names | map('upper') | list }} {{ names | map('replace', 'a', 'x') | join(',') }}",
        "{{ people | selectattr('on') | map(attribute='n') | list }} {{ people | selectattr('on', 'defined') | list | length }} {{ people | rejectattr('on', 'defined') | map(attribute='n') | list }} {{ people | selectattr('n', 'equalto', 'y') | list }} {{ people | selectattr('a', '>', 1) | map(attribute='n') | join }} {{ people | selectattr('n', 'in', ['x', 'z']) | list | length }}", "{{ list | select('odd') | list }} {{ list | reject('odd') | list }} {{ [0, 1, '', 'a'] | select | list }} {{ names | select('equalto', 'a') | list }} {{ list | select('>', 1) | list }}", "{{ list | min }} {{ list | max }} {{ names | max }} {{ [] | max }} {{ list | reverse | list }} {{ [1, 2, 1, 3] | unique | list }} {{ ['a', 'A', 'b'] | unique | list }}", "{{ (people | selectattr('on')) | length }}", "{% set g = list | map('string') %}{{ g | list }}{{ g | list }}{% if g %}t{% endif %}", "{% set g = list | map('string') %}{{ g | first }}{{ g | join }}", "{{ list | select('odd') is sequence }} {{ list | map('string') is iterable }} {{ range(3) is sequence }} {{ dict.items() is sequence }}", "{{ list.count(1) }} {{ list.index(2) }}", "{{ list.append(4) }}", "{% set _ = list.pop() %}", "{{ list + 1 }}", "{{ [1, 'a'] | sort }}", "{{ nested | tojson }}", "{{ range(3) | list }} {{ range(1, 4) | list }} {{ range(5, 0, -2) | list }} {{ range(0) | list }} {{ range(3)[1] }} {{ range(10)[2:5] | list }}", "{{ range(100001) }}", "{{ range(1, 2, 0) }}", "{{ list is sequence }}",
        "{{ people | map(attribute='z.y', default='-') | join }} {{ [dict] | map(attribute='z.y') | join }} {{ nested | map(attribute='0') | list }}", "{{ list | nosuch }}", "{{ list | map('nosuch') | list }}", "{{ list | join(sep='x') }}",
    ],
    "dicts": [
        "{{ dict.b }} {{ dict['a'] }} {{ dict.z.y }} {{ dict['items'] }} {{ dict.get('b') }} {{ dict.get('q') }} {{ dict.get('q', 'd') }} {{ dict | length }} {{ dict.keys() | list }} {{ dict.values() | list }}", "{% for k, v in dict.items() %}{{ k }}={{ v }};{% endfor %}{% for k in dict %}{{ k }}{% endfor %}{% for k, v in dict | items %}{{ loop.index }}{{ k }}{% endfor %}", "{{ dict | dictsort }} {{ {'b': 1, 'A': 2} | dictsort }} {{ {'b': 1, 'A': 2} | dictsort(true) }} {{ {'b': 1, 'a': 2} | dictsort(by='value') }} {{ {'b': 1, 'a': 2} | dictsort(reverse=true) }}", "{{ dict(a=1, b='x') }} {{ dict({'a': 1}, b=2) }} {{ dict([('a', 1)]) }} {{ dict() }}", "{{ dict.pop('a') }}", "{% set _ = dict.update({'q': 1}) %}{{ dict.q }}", "{{ {'a': 1}.a }} {{ {'a': 1, 'a': 2} }} {{ {1: 'x'}[1] }} {{ {true: 'x'}[1] }}", "{{ {[1]: 2} }}", "{{ 'b' in dict }} {{ dict == dict.copy() }} {{ dict | list }} {{ dict | first }} {{ dict | join(',') }}", "{{ (dict.items() | list)[0] }} {{ (dict.items() | list)[0][1] }}", "{{ dict.items is defined }}",
    ],
    "json": [
        "{{ messages | tojson }}", "{{ tools | tojson(indent=4) }}", "{{ tools | tojson(indent=2, sort_keys=true) }}", "{{ dict | tojson(separators=(',', ':')) }}", "{{ messages | tojson(ensure_ascii=true) }}", "{{ [big, small, x, yes, no, nothing, n, 1.0] | tojson }}", "{{ 'a\\x00\\x1f\\x7f\\b\\f\\n\\r\\t/\\\\\"<>&\\'' | tojson }}{{ 'a\\x7f' | tojson(true) }}", "{{ [] | tojson(indent=2) }}{{ {} | tojson(indent=2) }}{{ [[], {}] | tojson(indent=2) }}", "{{ {1: 1, none: 2, true: 3, 1.5: 4} | tojson }}", "{{ (1, 2) | tojson }}", "{{ namespace(a=1) | tojson }}", "{{ range(2) | tojson }}", "{{ dict | tojson(indent='--') }}", "{{ dict | tojson(indent=0) }}", "{{ messages[2].tool_calls[0].function.arguments | tojson | length }}", "{{ '\\u2028' | tojson }}", "{{ dict | tojson(indent=2, separators=(', ', ' = ')) }}", "{{ messages[1] }}", "{{ tools }}",
    ],
    "tests": [
        "".join("{{ %s is %s }}," % (v, t) for v in ["n", "x", "text", "list", "dict", "yes", "nothing", "missing", "(1,2)"] for t in ["defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "true", "false", "mapping", "iterable", "sequence"]),
        "{{ n is not none }} {{ n is not defined }} {{ not n is none }} {{ n is odd }} {{ n is even }} {{ n is divisibleby 7 }} {{ n is divisibleby(2) }} {{ n is eq 7 }} {{ n is equalto(7) }} {{ n is in [7] }} {{ n is ne 7 }} {{ n is gt 3 }} {{ n is lessthan 3 }} {{ n is ge 7 }} {{ n is le 7 }}", "{{ 'a' is lower }} {{ 'A' is upper }} {{ 'aB' is lower }} {{ '1' is lower }} {{ none is sameas none }} {{ 1 is sameas true }} {{ list is sameas list }}", "{{ 1 if n is defined else 2 }} {{ n is defined and no }} {{ n is string or yes }}", "{{ n is nosuch }}", "{{ n is string is defined }}", "{% macro f() %}{% endmacro %}{{ f is callable }} {{ f is defined }} {{ n is callable }} {{ range is defined }} {{ namespace is callable }} {{ namespace() is mapping }}", "{{ n is not string and n is number }}", "{{ 'abc' is in 'xabcx' }}", "{{ strftime_now is defined }} {{ raise_exception is defined }}",
    ],
    "if": [
        "{% if no %}a{% elif yes %}b{% elif yes %}c{% else %}d{% endif %}", "{% if no %}a{% elif no %}b{% else %}d{% endif %}", "{% if no %}a{% endif %}|", "{% if yes %}{% set v = 1 %}{% endif %}{{ v }}", "{% if yes %}{% if no %}a{% else %}b{% endif %}{% endif %}", "{% if missing %}a{% else %}b{% endif %}{% if '' %}a{% endif %}{% if [] %}a{% endif %}{% if 0.0 %}a{% endif %}{% if [0] %}z{% endif %}", "{% if %}{% endif %}", "{% if yes %}a{% else %}b{% elif no %}c{% endif %}", "{% if yes %}{% endfor %}",
    ],
    "for": [
        "{% for a in list %}{{ a }}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }};{% endfor %}", "{% for a in list %}{{ loop.previtem }}<{{ a }}>{{ loop.nextitem }} {{ loop.previtem is defined }}{% endfor %}", "{% for a in list if a > 1 %}{{ loop.index }}{{ a }}{{ loop.last }}{% else %}none{% endfor %}", "{% for a in list if a > 9 %}x{% else %}none{% endfor %}", "{% for a in [] %}x{% endfor %}|{% for a in () %}{% else %}e{% endfor %}", "{% for a in list %}{% for b in list %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}", "{% for a in list %}{% if a == 1 %}{% continue %}{% endif %}{{ a }}{% endfor %}", "{% for a in list %}{% if a == 1 %}{% break %}{% endif %}{{ a }}{% else %}never{% endfor %}", "{% set v = 0 %}{% for a in list %}{% set v = a %}{{ v }}{% endfor %}{{ v }}", "{% for a in list %}{% if loop.first %}{% set v = 1 %}{% endif %}[{{ v }}]{% endfor %}", "{% for a in list %}{{ a }}{% endfor %}{{ a }}{{ loop }}", "{% for a, b in [[1, 2], (3, 4), 'xy'] %}{{ a }}-{{ b }};{% endfor %}", "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "{% for a, b in [[1]] %}{% endfor %}", "{% for a in n %}{% endfor %}", "{% for a in nothing %}{% endfor %}", "{% for a in list %}{{ loop.cycle('x', 'y') }}{{ loop.changed(a > 1) }}{% endfor %}", "{% for m in messages[::-1] %}{% set i = (messages | length - 1) - loop.index0 %}{{ i }}{{ m.role }}{% endfor %}", "{% break %}", "{% for a in 1, 2, 3 %}{{ a }}{% endfor %}", "{% for a in list if a %}{{ a }}{% endfor %}", "{% for a in list %}{% macro f() %}{% break %}{% endmacro %}{% endfor %}", "{% for k in dict if k != 'a' %}{{ k }}{% endfor %}", "{% for a in list %}{{ missing is defined }}{% set missing = 1 %}{{ missing }}{% endfor %}", "{% for a in list %}a{% else %}b{% endfor %}", "{% for in list %}{% endfor %}", "{% for m in messages %}{% if m.tool_calls is defined and m.tool_calls %}{% for t in m.tool_calls %}{{ t.function.name }}{{ t.function.arguments | tojson }}{% endfor %}{% else %}{{ m.content | trim }}{% endif %}{% endfor %}",
    ],
    "set": [
        "{% set a = 1 %}{% set b, c = 2, 3 %}{% set d = 4, 5 %}{{ a }}{{ b }}{{ c }}{{ d }}", "{% set ns = namespace(a=1, b='x') %}{% for i in list %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns.c }}{{ ns['a'] }}", "{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns.b }}", "{% set a.b = 1 %}", "{% set dict.q = 1 %}", "{% set t %}x{{ n }}{% set inner = 1 %}y{% endset %}[{{ t }}]{{ inner }}{{ t | length }}", "{% set t | upper | trim %} abc {% endset %}[{{ t }}]", "{% set t | replace('a', 'b') %}aa{% endset %}{{ t }}", "{% set messages = messages[1:] %}{{ messages | length }}{{ messages[0].role }}", "{% set a = a or 5 %}{{ a }}", "{% set n = n + 1 %}{{ n }}", "{% if messages[0].role == 'system' %}{% set system = messages[0].content %}{% set rest = messages[1:] %}{% else %}{% set rest = messages %}{% endif %}{{ system }}{{ rest | length }}", "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% set a = 3 %}{{ a }}{% endwith %}{{ a }}", "{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q }}", "{% set a, b = 1 %}", "{% set %}", "{% set 1 = 2 %}", "{% set ns = namespace() %}{% set ns.list = [1] %}{% set ns.list = ns.list + [2] %}{{ ns.list }}{{ ns }}", "{% set t %}{% for i in list %}{{ i }}{% endfor %}{% endset %}{{ t }}", "{% filter upper %}a{{ n }}b{% set f = 1 %}{% endfilter %}{{ f }}", "{% filter replace('a', 'b') | upper %}banana{% endfilter %}", "{% set x = 1 if no %}{{ x is defined }}",
    ],
    "macro": [
        "{% macro f(a, b=2, c=b) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(1) }}|{{ f(1, 3) }}|{{ f(a=1, c=9) }}|{{ f(b=1, a=0) }}|{{ f() }}", "{% macro f(a) %}[{{ a }}{{ n }}]{% endmacro %}{{ f('x') | upper }}{{ f(f(1)) }}{% set r = f(2) %}{{ r }}{{ r is string }}", "{% macro f(n) %}{% if n > 0 %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}", "{% macro f() %}{{ late }}{% endmacro %}{% set late = 5 %}{{ f() }}", "{% macro f() %}{% set q = 1 %}{{ q }}{% endmacro %}{{ f() }}{{ q }}", "{% macro f() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, a=3) }}{{ f() }}", "{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", "{% macro f(a) %}{% endmacro %}{{ f(b=2) }}", "{% macro f(a) %}{% endmacro %}{{ f(1, a=2) }}", "{% macro f() %}<{{ caller() }}>{% endmacro %}{% call f() %}body{{ n }}{% endcall %}", "{% macro f(xs) %}{% for x in xs %}{{ caller(x) }},{% endfor %}{% endmacro %}{% call(x) f(list) %}[{{ x }}]{% endcall %}", "{% macro f() %}{{ caller is defined }}{% endmacro %}{{ f() }}{% call f() %}{% endcall %}", "{% macro f() %}x{% endmacro %}{% call f() %}{% endcall %}", "{% for a in list %}{{ g(a) }}{% endfor %}{% macro g(a) %}{{ a }}{% endmacro %}", "{% macro f(a='x' ~ n) %}{{ a }}{% endmacro %}{{ f() }}{{ f(none) }}", "{% macro a() %}a{{ b() }}{% endmacro %}{% macro b() %}b{% endmacro %}{{ a() }}", "{% macro f(x) -%}\n  {{ x }}\n{%- endmacro %}\n{{ f(1) }}\n", "{% for i in list %}{% macro f() %}{{ i }}{% endmacro %}{{ f() }}{% endfor %}", "{{ nosuch() }}", "{% macro f(a, b, c=3) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(*[1, 2]) }}{{ f(0, *[1], c=5) }}{{ f(*'xy') }}{{ [f][0](*(1, 2)) }}", "{% macro f(a) %}{% endmacro %}{{ f(*[1, 2]) }}", "{{ text.split(*[' ', 1]) }}{{ list | join(*['-']) }}", "{{ f(*5) }}{% macro f() %}{% endmacro %}", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "{% macro f(a b) %}{% endmacro %}", "{% macro f(item, depth=0) %}{% if item is mapping %}{% for k, v in item.items() %}{{ '  ' * depth }}{{ k }}:\n{{ f(v, depth + 1) }}{% endfor %}{% else %}{{ '  ' * depth }}{{ item }}\n{% endif %}{% endmacro %}{{ f(dict) }}", "{{ f.name }}{% macro f() %}{% endmacro %}", "{% call n %}{% endcall %}", "{% if no %}{% macro f() %}{% endmacro %}{% endif %}{{ f() }}",
    ],
    "functions": [
        "{{ raise_exception('no such role') }}", "{% if no %}{{ raise_exception('x') }}{% endif %}ok", "{{ strftime_now('%Y-%m-%d') }} {{ strftime_now('%d %b %Y %B %A %a %H:%M:%S %j %%') }}", "{% generation %}a{{ n }}{% set q = 1 %}{% endgeneration %}{{ q }}", "{% generation %}{% for a in list %}{% if a == 1 %}{% break %}{% endif %}{{ a }}{% endfor %}{% endgeneration %}", "{% include 'x' %}", "{% import 'x' as y %}", "{% extends 'x' %}", "{% do list.append(1) %}", "{% trans %}{% endtrans %}", "{% nosuch %}", 
    ],
    "chats": [
        "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
        "{{- bos_token }}\n{%- if tools is defined and tools is not none %}\n    {{- '<tools>' }}\n    {%- for tool in tools %}\n        {{- '\\n' + (tool | tojson) }}\n    {%- endfor %}\n    {{- '</tools>\\n' }}\n{%- endif %}\n{%- for m in messages %}\n    {%- set content = m.content | trim %}\n    {%- if m.role == 'assistant' and '</think>' in content %}\n        {%- set content = content.split('</think>')[-1].lstrip('\\n') %}\n    {%- endif %}\n    {{- '[' + m.role + '] ' + content }}\n{%- endfor %}",
        "{% set ns = namespace(found=false, last=messages | length - 1) %}{% for m in messages[::-1] %}{% set index = (messages | length - 1) - loop.index0 %}{% if not ns.found and m.role == 'user' and m.content is string %}{% set ns.found = true %}{% set ns.last = index %}{% endif %}{% endfor %}{{ ns.last }}{{ ns.found }}",
        "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate') }}{% endif %}{% endfor %}",
        "{%- for m in messages -%}\n  {{ m.role | title }}: {{ m.content if m.content is string else m.content | map(attribute='text') | join('') }}{{ '\\n' if not loop.last }}\n{%- endfor -%}",
    ],
}


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_support"), [], [], body).set_lineno(line)

    def _support(self, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).strftime(form)
    return env


def render(template, variables):
    try:
        return environment().from_string(template).render(**variables)
    except Exception:  # any exception counts as a refusal
        return None


def main():
    out = {"now": NOW, "variables": VARIABLES, "constructs": []}
    for name, templates in CASES.items():
        cases = [{"template": t, "rendered": render(t, VARIABLES)} for t in templates]
        out["constructs"].append({"name": name, "cases": cases})
    folder = os.path.join(HERE, "fixtures", "template")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "cases.json"), "w", encoding="utf-8") as f:
        json.dump(out, f, ensure_ascii=True, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main()
