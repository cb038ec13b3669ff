"""Each rule of tools/check_layers.py fires on a tree that breaks it, and on nothing else."""

import re
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "tools"))
import check_layers  # noqa: E402
import count_tokens  # noqa: E402

LONG_BODY = "int f() {\n" + "  g();\n" * 60 + "}\n"

# (file, text, the rules that must fire)
BROKEN = [
    ("src/base/a.h", '#include "formats/table.h"\n', ["floor"]),
    ("src/ir/a.h", '#include "backends/cpu/gemm/gemm.h"\n', ["floor"]),
    ("src/plan/a.cpp", '#include "data/inputs.h"\n', ["floor", "wall"]),
    ("tests/unit/ir/a.cpp", '#include "infer/export.h"\n', ["wall"]),
    ("tests/op_cases/a.cpp", '#include "text/regex.h"\n', ["wall"]),
    ("src/train/a.cpp", '#include "backends/cpu/gemm/gemm.h"\n', ["floor"]),
    ("src/runtime/a.cpp", '#include "passes/driver.h"\n', ["floor"]),
    ("src/backends/cpu/a.cpp", '#include "backends/cuda/tile.h"\n', ["floor"]),
    ("src/train/a.cpp", '#include "cli/common.h"\n', ["floor"]),
    ("src/train/a.cpp", '#include "library/loaded_model.h"\n', ["floor"]),
    ("src/passes/rewrite/a.h", '#include "passes/lower/fuse.h"\n', ["floor"]),
    ("src/passes/lower/a.h", '#include "passes/driver.h"\n', ["floor"]),
    ("src/passes/attic/a.h", "int a;\n", ["floor"]),
    ("src/backends/cuda/kernels/norm/a.cuh", '#include "backends/cuda/kernels/layer/layer.cuh"\n', ["floor"]),
    ("src/backends/cuda/kernels/norm/b.cuh", '#include "backends/cuda/kernels/common/vector8.cuh"\n', []),
    ("src/attic/a.h", "int a;\n", ["floor"]),
    ("include/octet/a.h", '#include "base/log.h"\n', ["public"]),
    ("include/octet/a.h", "#include <fmt/format.h>\n", ["public"]),
    ("include/octet/a.h", "#include <sys/stat.h>\n", ["public"]),
    ("examples/a.cpp", '#include "train/trainer.h"\n', ["public"]),
    ("src/train/a.cpp", '#include "octet/training.h"\n', ["public"]),
    ("src/base/a.h", '#include "octet/model.h"\n', ["public"]),
    ("src/CMakeLists.txt", "octet_folder(formats DEPS base ir)\n", ["floor"]),
    ("src/CMakeLists.txt", "octet_folder(train DEPS base backends/cuda/target)\n", ["floor"]),
    ("src/ir/a.h", "#include <cuda_runtime.h>\n", ["cuda-header"]),
    ("cli/a.cpp", "#include <nccl.h>\n", ["cuda-header"]),
    ("src/backends/cpu/a.cpp", '#include <hwy/foreach_target.h>\n#include "backends/cpu/common/simd_targets.h"\n', ["targets"]),
    ("src/ir/a.cpp", "void f() { std::exit(1); }\n", ["forbidden-call"]),
    ("src/ir/a.cpp", 'void f() { printf("x"); }\n', ["forbidden-call"]),
    ("src/ir/a.cpp", 'void f() { fmt::print("x"); }\n', ["forbidden-call"]),
    ("src/ir/a.cpp", "void f() { std::cout << 1; }\n", ["forbidden-call"]),
    ("src/ir/a.cpp", 'auto a = std::getenv("A");\n', ["forbidden-call"]),
    ("src/ir/a.cpp", '::setenv("A", "0", 1);\n', ["forbidden-call"]),
    ("src/nn/a.cpp", "auto a = Dtype::bf16;\n", ["model-names"]),
    ("src/nn/a.cpp", "auto a = Device::x();\n", ["model-names"]),
    ("src/nn/a.cpp", "bool recompute_norm = true;\n", ["model-names"]),
    ("src/ir/a.h", "int a;\n" * 201, ["file-size"]),
    ("src/ir/a.cpp", "int a;\n" * 401, ["file-size"]),
    ("src/backends/cpu/relu.cpp", "int a;\n" * 501, ["file-size"]),
    ("src/backends/cpu/gemm/gemm.cpp", "int a;\n" * 601, ["file-size"]),
    ("tests/unit/ir/a.cpp", "// " + "x" * 98 + "\n", ["line-length"]),
    ("src/ir/a.cpp", LONG_BODY, ["function-size"]),
    ("src/ir/a.cpp", "struct A {\n  int f() const\n  {\n" + "    g();\n" * 60 + "  }\n};\n", ["function-size"]),
    ("src/ir/a.cpp", "int f(int a, int b, int c, int d, int e, int g) {}\n", ["parameters"]),
    ("README.md", "written by an agent\n", ["word"]),
    ("src/ir/a.h", "// see issue #12\n", ["word"]),
]

SOUND = [
    ("src/backends/cpu/a.cpp", '#include "backends/cpu/common/simd_targets.h"\n#include <hwy/foreach_target.h>\n'),
    ("src/formats/a.h", '#include "base/error.h"\n#include "formats/b.h"\n#include <vector>\n'),
    ("src/train/a.cpp", '#include "runtime/a.h"\n#include "nn/llama.h"\n'),
    ("src/backends/cuda/a.cu", "#include <cuda_runtime.h>\n"),
    ("cli/a.cpp", '#include "backends/cpu/a.h"\nint a = exit_code(1);\nvoid f() { exit(1); }\n'),
    ("src/ir/a.cpp", "int a = exit_code(1);  // printf(\nstd::string b = \"std::cout << getenv\";\n"),
    ("src/base/log.h", "void f() { fputs(a, stderr); }\n"),
    ("src/nn/a.cpp", "// bf16 in a comment\nauto a = Dtype::i32;\nint n_ranked = 1'000;\n"),
    ("src/backends/cpu/attention.cpp", "int a;\n" * 600),
    ("src/ir/a.cpp", "int f() {\n" + "  g();\n" * 58 + "}\n"),
    ("src/ir/b.cpp", "namespace a {\n" + "int f() { return 1; }\n" * 70 + "}\n"),
    ("src/ir/a.cpp", "int f(std::map<int, int> a, int b, int c, int d, int e) {}\n"),
    ("src/CMakeLists.txt", "octet_folder(library DEPS base backends/cuda/target)\n"),
    ("include/octet/a.h", '#include <vector>\n#include <string_view>\n#include "octet/error.h"\n'),
    ("src/base/error.h", '#include "octet/error.h"\n'),
    ("src/library/a.cpp", '#include "octet/model.h"\n#include "train/a.h"\n#include "backends/cpu/a.h"\n'),
    ("examples/a.cpp", "#include <octet/octet.h>\n#include <cstdio>\n"),
    ("src/CMakeLists.txt", "octet_folder(io DEPS base formats LIBS nlohmann_json::nlohmann_json)\n"),
    ("build/a.h", "// " + "x" * 200 + "\n"),
]


def rules_of(files):
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files:
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        faults, _ = check_layers.check_tree(Path(folder))
        return [rule for _, _, rule, _ in faults]


class CheckLayers(unittest.TestCase):
    def test_each_broken_file_breaks_its_rule(self):
        for name, text, rules in BROKEN:
            with self.subTest(name=name, text=text[:60]):
                self.assertEqual(rules_of([(name, text)]), rules)

    def test_every_rule_has_a_broken_file(self):
        shown = {rule for _, _, rules in BROKEN for rule in rules}
        source = Path(check_layers.__file__).read_text(encoding="utf-8")
        named = set(check_layers.re.findall(r'yield [^,\n]+(?:\([^)]*\))?, "([a-z-]+)",', source))
        self.assertEqual(shown, named)

    def test_sound_files_break_nothing(self):
        for name, text in SOUND:
            with self.subTest(name=name, text=text[:60]):
                self.assertEqual(rules_of([(name, text)]), [])

    def test_public_types_have_their_names_alone(self):
        header = ("include/octet/a.h", "namespace octet {\nclass Thing {\n};\n}\n")
        self.assertEqual(rules_of([header, ("src/ir/a.h", "struct Thing {\n};\n")]), ["public-name"])
        self.assertEqual(rules_of([header, ("src/ir/a.h", "class Thing;\nstruct Things {\n};\n")]), [])

    def test_functions_of_unnamed_namespaces_hide_none_of_a_header(self):
        header = ("src/ir/a.h", "namespace octet {\ninline int rows_of(const Shape& x) {\n  return 1;\n}\n}\n")
        body = "namespace octet {\nnamespace {\nint rows_of(const %s& type) {\n  return 2;\n}\n}  // namespace\n}\n"
        self.assertEqual(rules_of([header, ("src/ir/a.cpp", body % "Shape")]), ["hidden-function"])
        self.assertEqual(rules_of([header, ("src/ir/a.cpp", body % "Value")]), [])
        self.assertEqual(rules_of([header, ("src/base/a.cpp", body % "Shape")]), [])

    def test_floors_have_no_cycle(self):
        done = set()
        while len(done) < len(check_layers.FLOORS):
            ready = {name for name, below in check_layers.FLOORS.items() if name not in done and below <= done}
            self.assertTrue(ready, "a cycle among " + str(set(check_layers.FLOORS) - done))
            done |= ready


class CountTokens(unittest.TestCase):
    def test_comments_and_layout_do_not_count(self):
        text = "int a = 1'000;  // x\n/* y\n   z */ char b = '\"';\nauto s = R\"(// no comment)\";"
        self.assertEqual(count_tokens.count(text), 15)
        self.assertEqual(count_tokens.count(text.replace("\n", "\n\n  ")), 15)

    def test_operators_and_numbers_are_one_token_each(self):
        self.assertEqual(count_tokens.count("a<<=0x1p-3f; b->c;"), 8)

    def test_a_table_of_sizes_is_stale_beyond_the_tolerance(self):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for name in ("src/base/a.cpp", "src/backends/cpu/gemm/a.cpp", "cli/a.cpp", "python/src/a.cpp", "tests/unit/ir/a.cpp"):
                (root / name).parent.mkdir(parents=True)
                (root / name).write_text("f();\n" * 40_000)
            (root / "docs").mkdir()
            (root / "docs/architecture.md").write_text("| 0 | base | |\n| 1 | backends/cpu | base |\n| 2 | cli, python | all |\n")
            text, numbers = count_tokens.table(root)
            self.assertIn("| 2 | cli 40.0, python 40.0 | 80 | 320 |\n| - | include 0.0, bench 0.0, tests 40.0 | 40 | 160 |\n", text)
            self.assertEqual(list(count_tokens.faults(text.replace("cli 40.0", "cli 38.0"), numbers)), [])
            stale = list(count_tokens.faults(text.replace("cli 40.0", "cli 37.0").replace("| 320 |", "| 300 |"), numbers))
            self.assertEqual([fault.split(":")[0] for fault in stale], ["lines of cli", "tokens of floor 2"])
            (root / "docs/architecture.md").write_text("| 0 | base | |\n| 2 | cli, python | all |\n")
            with self.assertRaises(SystemExit):
                count_tokens.table(root)


class Architecture(unittest.TestCase):
    def test_the_page_names_the_folders_that_a_folder_may_include(self):
        page = (Path(count_tokens.__file__).parent.parent / "docs/architecture.md").read_text()
        lists = {name: set(below.split(", ")) for _, names, below in re.findall(r"(?m)^\| (\d) \| ([\w/, ]+) \| ([\w/, ]+) \|$", page)
                 for name in names.split(", ")}
        plain = {name: below for name, below in lists.items() if below <= check_layers.FLOORS.keys()}
        self.assertGreaterEqual(len(plain), 16)
        for name, below in plain.items():
            self.assertEqual(below, check_layers.FLOORS[name], name)


if __name__ == "__main__":
    unittest.main()
