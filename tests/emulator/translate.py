#!/usr/bin/env python3
"""Turns the CUDA module's sources into C++ that runs on the CPU (emulator.h).

  translate.py FROM TO     every source and header of folder FROM, to the same names under TO, x.cu to x.cu.cpp

Three things are not C++: launches `kernel<<<grid, block, shared, stream>>>(...)`, dynamic shared memory, and inline assembly, which
becomes a call of the function in emulator_asm.h whose name is the instruction's.
"""
import os
import re
import sys


PLACES = {"threadIdx": "thread", "blockIdx": "block", "gridDim": "grid_size", "blockDim": "block_size"}


def closing(text, at, pair="()"):
    """The index behind the bracket that closes the one at `at`."""
    depth = 0
    for i in range(at, len(text)):
        depth += (text[i] == pair[0]) - (text[i] == pair[1])
        if depth == 0:
            return i + 1
    raise ValueError(f"no closing bracket: {text[at:at + 60]!r}")


def parts(text, separator=","):
    """At separators outside brackets and strings."""
    depth, begin, found, quoted = 0, 0, [], False
    for i, c in enumerate(text):
        quoted ^= c == '"' and (i == 0 or text[i - 1] != "\\")
        if quoted:
            continue
        depth += (c in "([{") - (c in ")]}")
        if c == separator and depth == 0:
            found.append(text[begin:i].strip())
            begin = i + 1
    rest = text[begin:].strip()
    return found + [rest] if rest else found


def kernel_before(text, at):
    """Where the name of the kernel begins that ends at `at`, with its template arguments."""
    i = at
    if text[i - 1] == ">":
        depth = 0
        while True:
            i -= 1
            depth += (text[i] == ">") - (text[i] == "<")
            if depth == 0:
                break
    while re.match(r"[\w:.]", text[i - 1]):
        i -= 1
    return i


def translate_launches(text):
    while match := re.search(r"^(?!\s*//).*?(<<<)", text, re.MULTILINE):
        at = match.start(1)
        begin = kernel_before(text, len(text[:at].rstrip()))
        end_of_shape = text.index(">>>", at)
        arguments = text.index("(", end_of_shape)
        end = closing(text, arguments)
        shape = (parts(text[at + 3:end_of_shape]) + ["0"])[:3]
        if not text[begin:at].strip():
            raise ValueError(f"no kernel: {text[at - 60:at + 60]!r}")
        given = parts(text[arguments + 1:end - 1])
        kernel = text[begin:at].rstrip()
        if any(one.startswith("{") for one in given):  # of no type by themselves
            call = f"[=] {{ {kernel}({', '.join(given)}); }}"
        else:
            call = ", ".join([f"[=](auto... emulated) {{ {kernel}(emulated...); }}"] + given)
        name = re.match(r"[\w:.]+", kernel).group(0)
        name = f'emulator::name_of(reinterpret_cast<const void*>({name}))' if name == "kernel" else f'"{name}"'
        text = f"{text[:begin]}emulator::launch({name}, {', '.join(shape)}, {call}){text[end:]}"
    return text


def translate_assembly(text):
    result = ""
    while match := re.search(r"\basm(\s+volatile)?\s*\(", text):
        end = closing(text, match.end() - 1)
        body = text[match.end():end - 1]
        code, *operands = parts(body, ":")
        names = [re.search(r'"[^"]*"\s*\((.*)\)$', one, re.DOTALL).group(1) for group in operands[:2] for one in parts(group)]
        instructions = [line for line in re.sub(r'[{}"]|\\n', " ", code).split(";") if "%" in line or "cp.async" in line]
        instruction = re.sub(r"\W+", "_", instructions[-1].split()[0]) if instructions else ""
        call = f"emulator::{instruction}({', '.join(names)})" if instruction else "(void)0"
        result += text[:match.start()] + call
        text = text[end:]
    return result + text


def poison_static_shared(text):
    """Every block finds shared memory of its kernels' own variables as no block before has left it."""
    def poisoned(match):
        names = [re.match(r"\w+", one).group(0) for one in parts(match.group(1))]
        return match.group(0) + "".join(f" static uint64_t {name}_seen = 0; emulator::poison_once({name}_seen, {name});" for name in names)
    return re.sub(r"(?<!extern )\b__shared__ (?:__align__\(\d+\) )?(?:unsigned int|[\w:]+(?:<[^<>]*>)?) ([^;]+);", poisoned, text)


def translate(text):
    text = re.sub(r"extern __shared__ (?:__align__\(\d+\) )?(\w+) (\w+)\[\];", r"\1* const \2 = emulator::dynamic_shared<\1>();", text)
    text = poison_static_shared(text)
    for name, place in PLACES.items():
        text = re.sub(rf"(?<![.\w]){name}\b", f"emulator::place.{place}", text)
    text = re.sub(r"\b__noinline__\b", "__attribute__((noinline))", text)
    return translate_launches(translate_assembly(text))


def main():
    source, target = sys.argv[1:]
    for folder, _, files in os.walk(source):
        for name in files:
            if not name.endswith((".h", ".cuh", ".cu", ".cpp")):
                continue
            path = os.path.join(folder, name)
            to = os.path.join(target, os.path.relpath(path, source)) + (".cpp" if name.endswith(".cu") else "")
            with open(path, encoding="utf-8") as f:
                text = translate(f.read())
            if os.path.exists(to):
                with open(to, encoding="utf-8") as f:
                    if f.read() == text:
                        continue
            os.makedirs(os.path.dirname(to), exist_ok=True)
            with open(to, "w", encoding="utf-8") as f:
                f.write(text)


if __name__ == "__main__":
    main()
