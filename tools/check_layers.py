#!/usr/bin/env python3
"""Checks the rules of docs/architecture.md that a compiler does not: floors, sizes, names, words.

    tools/check_layers.py [ROOT]      prints one line a fault, `path:line: rule: what`; exits 1 if there is one

Only the standard library. Every rule is a function of (path, lines) that yields faults; RULES lists them.
"""

import re
import sys
from pathlib import Path

# The floors: which folders of src a folder may include, itself besides. Downward only.
BELOW_TRAIN = {"base", "formats", "device", "text", "data", "config", "math", "ir", "io", "comm", "nn", "optim",
               "passes", "plan", "compile", "runtime"}
FLOORS = {
    "base": set(),
    "formats": {"base"},
    "device": {"base"},
    "text": {"base"},
    "data": {"base", "text"},
    "math": {"base", "formats"},
    "ir": {"base", "formats", "math"},  # what a row's layer computes
    "io": {"base", "formats", "text"},  # patterns of modules are regular expressions
    "comm": {"base"},
    "nn": {"base", "formats", "data", "ir"},  # what data bring to a model
    "optim": {"base", "formats", "ir"},
    "passes": {"base", "formats", "ir"},
    "plan": {"base", "formats", "device", "math", "ir"},  # whose sums a GEMM has
    "config": {"base", "formats", "data", "ir", "nn", "optim", "passes"},  # names are theirs
    "compile": {"base", "formats", "ir", "optim", "passes", "plan"},
    "backends/cpu": {"base", "formats", "math", "device", "comm", "ir", "plan"},
    "backends/cuda": {"base", "formats", "math", "device", "ir", "plan"},
    "runtime": {"base", "formats", "device", "math", "comm", "ir", "plan"},
    "infer": BELOW_TRAIN,
    "train": BELOW_TRAIN | {"infer"},  # it evaluates as infer does
    "ptq": BELOW_TRAIN | {"infer"},
    "study": BELOW_TRAIN | {"infer", "ptq"},
    "library": BELOW_TRAIN | {"infer", "train", "backends/cpu", "backends/cuda"},
}
# The floors of large folders: a sub-folder may include itself and those that stand before it; files of the folder itself may
# include all of them, and only files that are listed here are included by them.
SUBFLOORS = {
    "src/passes": ["rewrite", "lower", "memory", "parallel", "scalify", "precision"],
    "src/backends/cpu": ["common", "codec", "elementwise", "loss", "norm", "rope", "gemm", "attention", "quantize", "adamw", "ranks",
                         "reference", "bind"],
    "src/backends/cuda": ["kernel_id.h", "module_api.h", "optimizer_api.h", "formats_api.h", "backend.h", "params", "rows", "launch",
                         "kernels", "module", "target"],
    "src/backends/cuda/kernels": ["common", "move", "reduce", "quantize", "gemm", "attention", "norm", "activation", "layer", "rope",
                                  "loss", "adamw", "ranks"],
}
# What of include/octet a folder of src may include: the promise is kept by library, the one error is everybody's.
PUBLIC = {"base": {"octet/error.h"}, "library": None}
# The core computes, and knows nothing of what stands at the edges: texts, data, images, tasks, files of models, export, study.
# Its tests keep to it as well, so that they are built without the rest (octet_unit_core).
CORE = {"base", "formats", "device", "math", "comm", "ir", "optim", "passes", "plan", "compile", "backends/cpu", "backends/cuda",
        "runtime"}
CORE_TESTS = ("tests/op_cases/", *(f"tests/unit/{name}/" for name in sorted(CORE | {"cpu"}) if "/" not in name))
CUDA_FOLDERS = ("src/backends/cuda/", "src/comm/nccl/")
HIGHWAY_TARGETS = "backends/cpu/common/simd_targets.h"

MAX_LINE = 100
MAX_HEADER, MAX_SOURCE, MAX_KERNEL, MAX_GEMM = 200, 400, 500, 600
MAX_FUNCTION, MAX_PARAMETERS = 60, 5

CODE = {".h", ".cpp", ".cu", ".cuh"}
TEXT = CODE | {".py", ".md", ".txt", ".sh", ".yaml", ".yml", ".cmake", ".json", ".ir", ""}
SKIPPED = {".git", "build", "runs", ".cache", "__pycache__"}
THIS_CHECK = {"tools/check_layers.py", "tests/layers/check_layers_test.py"}

# What src never does (the logger alone writes).
FORBIDDEN_CALLS = [
    (re.compile(r"(?<![\w.>])(?:std::)?(?:_exit|_Exit|exit|quick_exit|abort)\s*\("), "ends the process"),
    (re.compile(r"\b(?:v?f?printf|puts|fputs|putchar)\s*\("), "prints"),
    (re.compile(r"\bfmt::print(?:ln)?\s*\("), "prints"),
    (re.compile(r"\bstd::(?:cout|cerr|clog)\b"), "prints"),
    (re.compile(r"\b(?:secure_)?getenv\b"), "reads the environment"),
    (re.compile(r"\b(?:set|unset|put)env\b"), "writes the environment"),
]
WRITERS = {"src/base/log.h", "src/base/log.cpp"}

# What a model never names. Integer types stay: tokens and positions are integers everywhere.
MODEL_NAMES = re.compile(
    r"\b(f16|f32|f64|bf16|fp16|fp32|fp8\w*|e4m3\w*|e5m2\w*|e8m0|hif8|de8\w*"
    r"|cpu|gpu|cuda|Device\w*|recompute\w*|checkpointing|world_size|local_rank)\b")

WORDS = re.compile(r"\b(sub-?agents?|agents?|chat session|coding session|claude|anthropic|chatgpt|copilot"
                   r"|workplace|issue #?\d+)\b|/work/(?:main|shared)|/tmp/brief", re.IGNORECASE)

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
CUDA_HEADER = re.compile(r"^(cuda|cublas|cudnn|nccl|nvml|nvrtc|curand|cusparse|cutlass|cute)", re.IGNORECASE)


def folder_of(path):
    """The floor's key of a file under src: src/backends/cpu/x.cpp -> backends/cpu."""
    parts = path.split("/")[1:-1]
    if not parts:
        return ""
    return "/".join(parts[:2]) if parts[0] == "backends" else parts[0]


def check_public(path, lines):
    """Headers of include/octet stand on the standard library alone, examples on them, and src below library on none."""
    is_header, is_example = path.startswith("include/"), path.startswith("examples/")
    if not is_header and not is_example and not path.startswith("src/"):
        return
    allowed = PUBLIC.get(folder_of(path), set())
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        name, is_octet = match.group(2), match.group(2).startswith("octet/")
        is_standard = match.group(1) == "<" and re.fullmatch(r"[a-z_]+", name)
        if is_header or is_example:
            if not is_octet and not is_standard:
                yield number, "public", f"expected the standard library or octet/, got {name}"
        elif is_octet and allowed is not None and name not in allowed:
            yield number, "public", f"{folder_of(path)} may not include {name}"


TYPE_DEFINED = re.compile(r"^(?:class|struct|enum class|enum)\s+(\w+)\b(?!::)(?=[^;]*(?:\{|$))")


def check_public_names(files):
    """One namespace holds include/octet and src: a type of either has its name alone."""
    public = {}
    for path, lines in files:
        if path.startswith("include/"):
            for line in lines:
                match = TYPE_DEFINED.match(line)
                if match:
                    public[match.group(1)] = path
    for path, lines in files:
        if not path.startswith(("src/", "cli/")):
            continue
        for number, line in enumerate(lines, 1):
            match = TYPE_DEFINED.match(line)
            if match and match.group(1) in public:
                yield path, number, "public-name", f"{match.group(1)} is a type of {public[match.group(1)]}"


FUNCTION = re.compile(r"(?m)^(?=\S)(?!using|return|alignas|#)[\w:<>,&*\[\] ]*[ &*>](\w+)\(([^(){};]*)\)[^(){};]*[{;]")


def signatures(text):
    """(line, name, types of parameters) of functions that begin in the first column."""
    for match in FUNCTION.finditer(text):
        depth, parameters = 0, [""]
        for char in match.group(2):
            depth += (char in "<[") - (char in ">]")
            if char == "," and depth == 0:
                parameters.append("")
            else:
                parameters[-1] += char
        types = [re.sub(r"\s+|\w+$", "", one.split("=")[0].strip()) if " " in one.strip() else one.strip()
                 for one in parameters]
        yield text.count("\n", 0, match.start()) + 1, match.group(1), tuple(types)


def in_unnamed_namespaces(lines):
    """The text with nothing left but what is in unnamed namespaces."""
    inside, kept = False, []
    for line in lines:
        inside = inside and not line.startswith("}  // namespace")
        kept.append(line if inside else "")
        inside = inside or line.startswith("namespace {")
    return without_comments("\n".join(kept))


def check_hidden_functions(files):
    """Sources of a folder are compiled as one: a function of an unnamed namespace would hide, for the others, one of a
    header with the same parameters."""
    declared = {}
    for path, lines in files:
        if path.endswith(".h") and not path.endswith("-inl.h") and path.startswith(("src/", "cli/", "bench/")):
            for _, name, types in signatures(without_comments("\n".join(lines))):
                declared.setdefault((name, types), []).append(path)
    for path, lines in files:
        if not path.endswith(".cpp") or not path.startswith(("src/", "cli/", "bench/")):
            continue
        folder = folder_of(path)
        near = {folder} | FLOORS.get(folder, set())
        for number, name, types in signatures(in_unnamed_namespaces(lines)):
            for header in declared.get((name, types), []):
                if folder_of(header) in near or not path.startswith("src/"):
                    yield path, number, "hidden-function", f"{name} hides the one of {header}"


def target_folder(include):
    parts = include.split("/")
    return "/".join(parts[:2]) if parts[0] == "backends" and len(parts) > 2 else parts[0]


def without_comments(text):
    """The code with comments and the contents of strings blanked; lines keep their numbers."""
    def blank(match):
        kept = match.group(0)
        if kept.startswith(("//", "/*")):
            return re.sub(r"[^\n]", " ", kept)
        return '""' + "\n" * kept.count("\n") if kept.startswith(('"', "R")) else "' '"
    pattern = (r'//[^\n]*|/\*.*?\*/|\bR"([^(\s]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"'
               r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'")
    return re.sub(pattern, blank, text, flags=re.DOTALL)


def check_includes(path, lines):
    if not path.startswith("src/"):
        return
    folder = folder_of(path)
    if folder not in FLOORS:
        yield 1, "floor", f"folder {folder or 'src'} is not in the table of floors"
        return
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        target = target_folder(match.group(2))
        is_ours = match.group(1) == '"' and (target in FLOORS or target == "backends" or target == "cli")
        if is_ours and target != folder and target not in FLOORS[folder]:
            yield number, "floor", f"{folder} may not include {match.group(2)}"


def check_wall(path, lines):
    """Neither the core nor its tests include what stands at the edges."""
    if folder_of(path) not in CORE and not path.startswith(CORE_TESTS):
        return
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        target = target_folder(match.group(2)) if match and match.group(1) == '"' else ""
        if (target in FLOORS or target == "cli") and target not in CORE:
            yield number, "wall", f"the core may not include {match.group(2)}"


def check_subfloors(path, lines):
    for folder, order in SUBFLOORS.items():
        if not path.startswith(folder + "/"):
            continue
        inside = path[len(folder) + 1:].split("/")
        if len(inside) == 1:
            continue
        if inside[0] not in order:
            yield 1, "floor", f"sub-folder {inside[0]} of {folder} is not in the table of floors"
            continue
        for number, line in enumerate(lines, 1):
            match = INCLUDE.match(line)
            if not match or not ("src/" + match.group(2)).startswith(folder + "/"):
                continue
            target = ("src/" + match.group(2))[len(folder) + 1:].split("/")[0]
            if target not in order or order.index(target) > order.index(inside[0]):
                yield number, "floor", f"{folder}/{inside[0]} may not include {match.group(2)}"


def check_cuda_headers(path, lines):
    if path.startswith(CUDA_FOLDERS) or not path.startswith(("src/", "include/", "cli/", "python/")):
        return
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        if match and CUDA_HEADER.match(match.group(2)):
            yield number, "cuda-header", f"{match.group(2)} belongs to backends/cuda and comm/nccl"


# clang-format puts <hwy/...> first in a block; then the list comes too late, and code is made for all that Highway knows.
def check_targets(path, lines):
    if not path.endswith(".cpp"):
        return
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        if match and match.group(2) == HIGHWAY_TARGETS:
            return
        if match and match.group(2).startswith("hwy/"):
            yield number, "targets", f"{match.group(2)} belongs behind {HIGHWAY_TARGETS}"


def check_calls(path, lines):
    if not path.startswith("src/") or path in WRITERS:
        return
    for number, line in enumerate(without_comments("\n".join(lines)).split("\n"), 1):
        for pattern, what in FORBIDDEN_CALLS:
            match = pattern.search(line)
            if match:
                yield number, "forbidden-call", f"{match.group(0).strip()} {what}"


def check_models(path, lines):
    if not path.startswith("src/nn/"):
        return
    for number, line in enumerate(without_comments("\n".join(lines)).split("\n"), 1):
        match = MODEL_NAMES.search(line)
        if match:
            yield number, "model-names", f"a model names {match.group(0)}"


def largest(path):
    name = path.rsplit("/", 1)[-1]
    if path.endswith((".h", ".cuh")):
        return MAX_HEADER
    if not path.startswith("src/backends/"):
        return MAX_SOURCE
    return MAX_GEMM if "gemm" in name or "attention" in name else MAX_KERNEL


def check_sizes(path, lines):
    if path.startswith(("src/", "cli/", "include/", "python/")) and len(lines) > largest(path):
        yield largest(path), "file-size", f"{len(lines)} lines, at most {largest(path)}"
    for number, line in enumerate(lines, 1):
        if len(line) > MAX_LINE:
            yield number, "line-length", f"{len(line)} columns, at most {MAX_LINE}"


NOT_A_FUNCTION = re.compile(r"(^|\s)(namespace|class|struct|union|enum|if|for|while|switch|catch|do|else|try)\b"
                            r"|\boperator\s*$|=\s*$|\breturn\b")


def functions(text):
    """(line, lines, parameters) of each function body outside another; by braces, so a heuristic."""
    code = without_comments(text)
    code = re.sub(r"(?m)^\s*#.*(?:\\\n.*)*$", lambda m: "\n" * m.group(0).count("\n"), code)
    start, depth, body = 0, 0, None   # body: (depth, first line, parameters) of the function we are in
    for at, char in enumerate(code):
        if char == "{":
            header = code[start:at]
            if body is None and "(" in header and not NOT_A_FUNCTION.search(header):
                begin = start + len(header) - len(header.lstrip())
                body = (depth, code.count("\n", 0, begin) + 1, count_parameters(header))
            depth += 1
            start = at + 1
        elif char == "}":
            depth -= 1
            if body is not None and body[0] == depth:
                yield body[1], code.count("\n", 0, at) + 2 - body[1], body[2]
                body = None
            start = at + 1
        elif char == ";" and body is None:
            start = at + 1


def count_parameters(header):
    opening = header.find("operator()(") + 10 if "operator()(" in header else header.find("(")
    depth, n_commas, has_text = 0, 0, False
    for char in header[opening:]:
        depth += (char in "(<[{") - (char in ")>]}")
        if depth == 0:
            break
        n_commas += char == "," and depth == 1
        has_text = has_text or (char not in "( \n")
    return n_commas + 1 if has_text else 0


def check_functions(path, lines):
    if not path.startswith(("src/", "cli/", "include/", "python/")):
        return
    for line, n_lines, n_parameters in functions("\n".join(lines)):
        if n_lines > MAX_FUNCTION:
            yield line, "function-size", f"{n_lines} lines, at most {MAX_FUNCTION}"
        if n_parameters > MAX_PARAMETERS:
            yield line, "parameters", f"{n_parameters} parameters, at most {MAX_PARAMETERS}"


def check_words(path, lines):
    if path in THIS_CHECK:
        return
    for number, line in enumerate(lines, 1):
        match = WORDS.search(line)
        if match:
            yield number, "word", f"'{match.group(0)}' does not belong into this project"


def check_links(path, lines):
    """The links of src/CMakeLists.txt stay within the floors."""
    if path != "src/CMakeLists.txt":
        return
    for number, line in enumerate(lines, 1):
        match = re.match(r"octet_folder\((\S+)(?:.*?\bDEPS\s+([^)]*?))?(?:\s+LIBS\b.*)?\)", line)
        if not match or match.group(1) not in FLOORS:
            continue
        for link in (match.group(2) or "").split():
            link = "/".join(link.split("/")[:2])
            if link not in FLOORS[match.group(1)]:
                yield number, "floor", f"{match.group(1)} may not link {link}"


CODE_RULES = [check_includes, check_wall, check_subfloors, check_public, check_cuda_headers, check_targets, check_calls, check_models,
              check_sizes, check_functions]
TEXT_RULES = [check_words, check_links]


def project_files(root):
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        top = name.split("/")[0]
        skipped = any(part in SKIPPED for part in name.split("/")) or top.startswith("build")
        if not skipped and path.suffix in TEXT and path.is_file() and not path.is_symlink():
            yield name, path


def check_tree(root):
    """All faults as (path, line, rule, what), and the number of files looked at."""
    faults, n_files, code = [], 0, []
    for name, path in project_files(root):
        try:
            lines = path.read_text(encoding="utf-8").split("\n")
        except UnicodeDecodeError:
            continue
        if lines and lines[-1] == "":
            lines.pop()
        is_code = path.suffix in CODE
        if is_code:
            code.append((name, lines))
        n_files += 1
        for rule in (CODE_RULES if is_code else []) + TEXT_RULES:
            faults += [(name, line, key, what) for line, key, what in rule(name, lines)]
    faults += check_public_names(code)
    faults += check_hidden_functions(code)
    return faults, n_files


def main(arguments):
    root = Path(arguments[1] if len(arguments) > 1 else Path(__file__).resolve().parent.parent)
    faults, n_files = check_tree(root)
    for path, line, rule, what in faults:
        print(f"{path}:{line}: {rule}: {what}")
    print(f"layers: {len(faults)} faults in {n_files} files")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
