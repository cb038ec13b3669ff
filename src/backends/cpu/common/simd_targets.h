// Highway for the CPU kernels: the targets that are built, fixed in one place because every file
// must agree. Include before any header of Highway. Below AVX2 the reference kernels run, so SSE
// needs no code of its own.
#pragma once

#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
#endif
