"""A function's source: read once with a parser, and rewritten so that its exports can be handed to the driver.

`export default EXPR`, `export const …` and `export { … }` become plain statements, so that lines stay as they are; one
call after the last line hands the exported values over. What cannot be rewritten is refused by line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import tree_sitter_javascript
from tree_sitter import Language, Node, Parser

from jeet.errors import DeployError

DEFAULT_NAME = "__jeet_d"  # `const __jeet_d=` is as long as `export default `
ENTRY_NAME = "__jeet"
_MAY_WAIT = re.compile(
    rb"\b(?:async|await|Promise|queueMicrotask|eval|Function|constructor|fromAsync|globalThis|Reflect|import)\b|\[\s*['\"`]|\\u"
)

_PROMISES = re.compile(rb"\b(?:async|await|Promise|queueMicrotask)\b")

Edit = tuple[int, int, bytes]


@dataclass(frozen=True)
class Lint:
    """Something that works but will surprise: where, and what."""

    line: int
    message: str


@dataclass(frozen=True)
class Source:
    """What parsing found, and the text to compile."""

    filename: str
    text: str
    """rewritten"""
    literal_emits: tuple[str, ...]
    collections: tuple[str, ...]
    lints: tuple[Lint, ...]
    may_wait: bool
    """whether anything in it could make promise jobs"""
    promises_at: int | None
    """line of the first word that plainly does"""


@cache
def _parser() -> Parser:
    return Parser(Language(tree_sitter_javascript.language()))


def decode_source(data: bytes, filename: str) -> str:
    """The text of a source file; DeployError with the line that is not UTF-8, or if its name says that it is none."""
    suffix = filename[filename.rfind(".") :].lower() if "." in filename else ""
    if suffix in (".ts", ".tsx", ".mts", ".cts", ".jsx"):
        raise DeployError(
            f"{filename}: functions are JavaScript; compile it first, for example: esbuild {filename} --format=esm"
        )
    if suffix in (".ndjson", ".jsonl", ".json", ".csv"):
        raise DeployError(f"{filename}: that is data, not a function; publish it: jeet publish STREAM {filename}")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DeployError(f"{filename}:{line}: the file is not UTF-8") from error


def read_source(source: str, filename: str, source_bytes: int) -> Source:
    """Parse and rewrite; DeployError (`file:line: what`) for what cannot be deployed."""
    try:
        data = source.encode()
    except UnicodeEncodeError as error:
        line = source.count("\n", 0, error.start) + 1
        raise DeployError(f"{filename}:{line}: the source holds a lone surrogate; save the file as UTF-8") from error
    if len(data) > source_bytes:
        raise DeployError(
            f"{filename}: the source has {len(data)} bytes; at most {source_bytes} can be deployed (source_bytes)"
        )
    if b"\0" in data:
        line = data.count(b"\n", 0, data.index(b"\0")) + 1
        raise DeployError(f"{filename}:{line}: the source holds a NUL character")
    if data.startswith(b"\xef\xbb\xbf"):
        data = b"   " + data[3:]
    root = _parser().parse(data).root_node
    edits: list[Edit] = []
    exports: dict[str, str] = {}
    lints: list[Lint] = []
    for node in root.named_children:
        if node.type == "import_statement":
            raise _refusal(
                filename, node, "import is not available: put what you need into this one file (a bundler does)"
            )
        if node.type == "export_statement":
            _rewrite_export(filename, node, edits, exports)
        lints.extend(_mutable_variables(node))
    emits: dict[str, None] = {}
    collections: dict[str, None] = {}
    for node in _walk(root):
        _look_at(filename, node, emits, collections)
    handed = ", ".join(f"{_quoted(name)}: {local}" for name, local in exports.items())
    rewritten = _apply(data, edits) + f"\n;{ENTRY_NAME}({{ __proto__: null, {handed} }});\n".encode()
    return Source(
        filename=filename,
        text=rewritten.decode(),
        literal_emits=tuple(emits),
        collections=tuple(collections),
        lints=tuple(lints),
        may_wait=_MAY_WAIT.search(data) is not None,
        promises_at=data.count(b"\n", 0, plainly.start()) + 1 if (plainly := _PROMISES.search(data)) else None,
    )


def _rewrite_export(filename: str, node: Node, edits: list[Edit], exports: dict[str, str]) -> None:
    if node.child_by_field_name("source") is not None:
        raise _refusal(filename, node, "export … from is not available: put what you need into this one file")
    is_default = any(child.type == "default" for child in node.children)
    declaration = node.child_by_field_name("declaration")
    value = node.child_by_field_name("value")
    if is_default:
        target = declaration or value
        if target is None:
            raise _refusal(filename, node, "this form of export default cannot be deployed: export a function")
        name = target.child_by_field_name("name") if declaration is not None else None
        if name is not None:
            edits.append((node.start_byte, target.start_byte, b""))
            exports["default"] = _text(name)
        else:
            edits.append((node.start_byte, target.start_byte, f"const {DEFAULT_NAME}=".encode()))
            exports["default"] = DEFAULT_NAME
        return
    if declaration is not None:
        edits.append((node.start_byte, declaration.start_byte, b""))
        for name_node in _declared_names(filename, declaration):
            exports[_text(name_node)] = _text(name_node)
        return
    clause = next((child for child in node.named_children if child.type == "export_clause"), None)
    if clause is None:
        raise _refusal(
            filename,
            node,
            "this form of export cannot be deployed: use export const, export function or export default",
        )
    for specifier in clause.named_children:
        if specifier.type != "export_specifier":
            continue
        local = specifier.child_by_field_name("name")
        alias = specifier.child_by_field_name("alias") or local
        if local is None or alias is None:
            raise _refusal(filename, specifier, "this export cannot be read")
        exports[_text(alias).strip("'\"")] = _text(local)
    edits.append((node.start_byte, node.end_byte, b";"))


def _declared_names(filename: str, declaration: Node) -> Iterator[Node]:
    if declaration.type in ("lexical_declaration", "variable_declaration"):
        for declarator in declaration.named_children:
            if declarator.type != "variable_declarator":
                continue
            name = declarator.child_by_field_name("name")
            if name is None or name.type != "identifier":
                raise _refusal(filename, declarator, "export one name at a time: a pattern cannot be exported")
            yield name
        return
    name = declaration.child_by_field_name("name")
    if name is None:
        raise _refusal(filename, declaration, "this export has no name")
    yield name


def _mutable_variables(node: Node) -> Iterator[Lint]:
    if node.type == "export_statement":
        inner = node.child_by_field_name("declaration")
        if inner is not None:
            yield from _mutable_variables(inner)
        return
    changeable = node.type == "variable_declaration" or (
        node.type == "lexical_declaration" and node.children and node.children[0].type == "let"
    )
    if not changeable:
        return
    for declarator in node.named_children:
        name = declarator.child_by_field_name("name")
        if name is not None:
            yield Lint(
                declarator.start_point[0] + 1,
                f"{_text(name)} is a module-level variable: it is not state, is lost when the task moves and is"
                " not rolled back; use const for a constant, or state.<collection>[key]",
            )


def _look_at(filename: str, node: Node, emits: dict[str, None], collections: dict[str, None]) -> None:
    if node.type == "call_expression":
        function = node.child_by_field_name("function")
        arguments = node.child_by_field_name("arguments")
        if function is None or arguments is None:
            return
        if function.type == "import":
            raise _refusal(
                filename, node, "import() is not available: put what you need into this one file (a bundler does)"
            )
        if function.type == "member_expression":
            target = function.child_by_field_name("property")
            literal = _string(arguments.named_children[0]) if arguments.named_children else None
            if target is not None and _text(target) == "emit" and literal is not None:
                emits.setdefault(literal)
    elif node.type == "member_expression":
        target, member = node.child_by_field_name("object"), node.child_by_field_name("property")
        if target is not None and member is not None and target.type == "identifier" and _text(target) == "state":
            collections.setdefault(_text(member))
    elif node.type == "subscript_expression":
        target, index = node.child_by_field_name("object"), node.child_by_field_name("index")
        if target is not None and index is not None and target.type == "identifier" and _text(target) == "state":
            literal = _string(index)
            if literal is not None:
                collections.setdefault(literal)


def _string(node: Node) -> str | None:
    """The text of a string literal without escapes."""
    if node.type != "string":
        return None
    parts = node.named_children
    if not parts:
        return ""
    return _text(parts[0]) if len(parts) == 1 and parts[0].type == "string_fragment" else None


def _walk(root: Node) -> Iterator[Node]:
    """All nodes, without recursion: a hostile source is deep."""
    cursor = root.walk()
    while True:
        node = cursor.node
        if node is not None:
            yield node
        if cursor.goto_first_child() or cursor.goto_next_sibling():
            continue
        while True:
            if not cursor.goto_parent():
                return
            if cursor.goto_next_sibling():
                break


def _text(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")


def _apply(data: bytes, edits: list[Edit]) -> bytes:
    """Each edit puts its text in place of a stretch: padded with spaces to its length, line ends kept."""
    text = bytearray(data)
    for start, end, head in reversed(edits):
        kept = bytearray(byte if byte in b"\r\n" else 0x20 for byte in data[start:end])
        line = len(kept.split(b"\n", 1)[0].rstrip(b"\r"))
        kept[: min(len(head), line)] = head  # a longer head moves the columns of its line, never lines
        text[start:end] = kept
    return bytes(text)


def _quoted(name: str) -> str:
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _refusal(filename: str, node: Node, what: str) -> DeployError:
    return DeployError(f"{filename}:{node.start_point[0] + 1}: {what}")
