// Highway for the CPU kernels: the targets that are built, fixed in one place because every file
// must agree. Include before any header of Highway. Below AVX2 the reference kernels run, so SSE
// needs no code of its own. The fallback is Highway's scalars under every compiler: GCC 12 has no
// other, and the sanitizers look at what it builds.
#pragma once

#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
#endif
#ifndef HWY_BROKEN_EMU128
#define HWY_BROKEN_EMU128 1
#endif
