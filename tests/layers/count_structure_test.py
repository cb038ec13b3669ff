"""Each count of tools/count_structure.py finds what it counts, and nothing else."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "tools"))
import count_structure  # noqa: E402

OPS = "OP(exp, Unary, NoAttrs, .needs_unscaled = {Unary::x})\n"
OP_DEF = """
struct OpRow {
  OpCode code;
  bool moves = false;  // a comment
  std::optional<double> unit = {};
  bool takes_factors = false, takes_runs = false;
  constexpr size_t own_results() const { return results.size() - (n > 0 ? 2 : 0); }
};
"""
LINES = [f"  const double value_{i} = function_of_a_name({i}, of_another_name);" for i in range(7)]


def found(text, path="src/passes/a.cpp", ops=OPS):
    return {name: len(places) for name, places in count_structure.op_counts({path: text, "src/ir/ops/ops.def": ops}) if places}


class CountStructure(unittest.TestCase):
    def test_lists_of_ops_are_found(self):
        for text in ("constexpr OpCode kMoves[] = {OpCode::pad};", "const std::set<OpCode> kMoves = {OpCode::pad};",
                     "for (const OpCode op : {OpCode::pad, OpCode::slice, OpCode::gather}) f(op);", "using enum OpCode;"):
            self.assertEqual(found(text), {"op lists": 1}, text)
            self.assertEqual(found(text, "src/backends/cuda/target/bind/a.cpp"), {}, text)
            self.assertEqual(found(f"// {text}"), {}, text)
        for text in ("std::optional<OpCode> quantized = {};", "f({OpCode::pad, OpCode::slice});"):
            self.assertEqual(found(text), {}, text)

    def test_cases_chains_and_masks_are_found(self):
        self.assertEqual(found("switch (op) {\n  case OpCode::pad:\n  case OpCode::slice:\n}"), {"op cases": 2})
        self.assertEqual(found("return op == OpCode::pad || op == OpCode::slice ||\n       op == OpCode::gather;"), {"op chains": 1})
        self.assertEqual(found("return op == OpCode::pad || op == OpCode::slice;"), {})
        self.assertEqual(found("", ops=OPS.replace("{Unary::x}", "0b1")), {"op masks": 1})

    def test_slots_found_by_text_and_stores_are_found(self):
        for text in ('def.operands.find("history")', "op_def(op).results.find(name)", 'place(view, operand_slot(view, "mean"))',
                     "if constexpr (requires { Op::bias; }) f();", "constexpr bool k = requires {\n  Op::bias;\n};"):
            self.assertEqual(found(text), {"slot strings": 1}, text)
        for text in ("to.find(from[i].name)", "gradients.find(node.operands[0])", "requires { a.amax; }"):
            self.assertEqual(found(text), {}, text)
        twins = "OP(gelu, Gelu, GeluAttrs,\n   .quantized = OpCode::gelu_quantize)\nOP(gelu_quantize, GeluQuantize, A)\nOP(fake_quantize, Unary, A)\n"
        self.assertEqual(found("", ops=twins), {"twin ops": 1, "stores": 1})
        self.assertEqual(found("", ops="OP(gemm, Gemm, GemmAttrs, .quantized = OpCode::gemm)\n"), {"stores": 1})
        self.assertEqual(found("", ops="OP(rope, Rope, A, .amax_results = 1)\nOP(quantize_both, Q, A)\n"), {"twin ops": 1, "stores": 2})

    def test_a_fact_has_two_readers_or_a_test(self):
        def lonely(files):
            return [place.split(":")[0] for place in count_structure.lonely_facts({"src/ir/op_def.h": OP_DEF, **files})]
        everything = ["moves", "unit", "takes_factors", "takes_runs"]
        self.assertEqual(lonely({}), everything)
        self.assertEqual(lonely({"src/a.cpp": "op_def(op).moves"}), everything)
        self.assertEqual(lonely({"src/a.cpp": "op_def(op).moves", "tests/b.cpp": "op_def(op).moves"}), everything[1:])
        self.assertEqual(lonely({"tests/unit/ir/ops_list_test.cpp": "EXPECT_EQ(def.unit, 1)"}), ["moves", "takes_factors", "takes_runs"])

    def test_equal_lines_are_found_once(self):
        text = "\n".join(LINES)
        def pairs(one, other):
            return list(count_structure.duplicates({"src/a.cpp": one, "src/b.cpp": other}, ("src/",)))
        self.assertEqual(pairs(text, "int a;\n\n" + text), ["src/a.cpp:1 src/b.cpp:3 7 lines"])
        self.assertEqual(pairs(text, "\n".join(LINES[:5])), [])
        self.assertEqual(pairs("#include <map>\n" * 20, "#include <map>\n" * 20), [])

    def test_includes_are_followed(self):
        files = {"src/a.cpp": '#include "b.h"\n#include <map>\n', "src/b.h": '#include "c.h"\n', "src/c.h": '#include "b.h"\n'}
        self.assertEqual(count_structure.includes(files, "src/a.cpp"), ["src/b.h", "src/c.h"])


if __name__ == "__main__":
    unittest.main()
