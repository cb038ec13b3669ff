"""tools/check_kernels.py refuses a kernel that nvcc empties, by each of its rules, and takes the same one without the fault."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "tools"))
import check_kernels  # noqa: E402

FIXTURES = check_kernels.ROOT / "tests/fixtures/kernels"
NO_NVCC = "no nvcc"

KERNEL = """
.entry first(
	.param .u64 first_param_0
)
{
	ld.param.u64 	%rd1, [first_param_0];
	{ // inline assembly
	mov.b32 %r1, 0;
}
	// st.global is but a comment
	STORE
	ret;
}
.visible .entry second(
	.param .u64 second_param_0
)
{
	st.global.u32 	[%rd1], %r1;
}
.func helper()
{
	ret;
}
"""


def rules_of(name, *more):
    return sorted({rule for rule, _ in check_kernels.check_file(FIXTURES / name, check_kernels.build_flags() + list(more))})


class Ptx(unittest.TestCase):
    def test_a_kernel_without_a_store_is_empty(self):
        self.assertEqual(check_kernels.empty_kernels(KERNEL), [("empty-kernel", "first stores nothing")])

    def test_each_store_behind_inline_assembly_counts(self):
        for store in ("st.global.u32 [%rd1], %r1;", "@%p1 st.shared.u8 [%r1], %rs1;", "@!%p1 red.global.add.f32 [%rd1], %f1;",
                      "atom.global.inc.u32 %r1, [%rd1], 3;", "{ st.global.u32 [%rd1], %r1;", "call.uni helper, ();"):
            self.assertEqual(check_kernels.empty_kernels(KERNEL.replace("STORE", store)), [], store)

    def test_a_call_by_address_is_of_a_host_function(self):
        self.assertEqual(check_kernels.calls_of_host(KERNEL), [])
        text = KERNEL.replace("STORE", "prototype_1 : .callprototype (.param .b64 _) _ ();")
        self.assertEqual([rule for rule, _ in check_kernels.calls_of_host(text)], ["host-call"])


@unittest.skipIf(check_kernels.find_nvcc() is None, NO_NVCC)
class Fixtures(unittest.TestCase):
    def test_the_fault_does_not_compile_as_the_module_is_built(self):
        self.assertEqual(rules_of("dropped_call.cu"), ["compile", "empty-kernel", "host-call"])

    def test_the_fault_is_seen_where_it_compiles(self):
        self.assertEqual(rules_of("dropped_call.cu", check_kernels.RELAXED), ["empty-kernel", "host-call"])

    def test_the_same_kernel_without_the_fault_is_sound(self):
        self.assertEqual(rules_of("sound.cu"), [])

    def test_a_file_that_includes_nothing_of_the_project_is_its_only_input(self):
        self.assertEqual(list(check_kernels.inputs(FIXTURES / "sound.cu")), [FIXTURES / "sound.cu"])


if __name__ == "__main__":
    unittest.main()
