# Compile options that every target shares. Contraction and fast-math stay off: the encoders, the quantizers and the
# optimizer promise the same bits on every machine.
add_library(octet_options INTERFACE)
target_compile_options(octet_options INTERFACE -Wall -Wextra -Wno-unused-parameter -ffp-contract=off)
target_include_directories(octet_options INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
# GCC looks for garbage from 512 MiB on: a tenth less to compile, a fifth more memory.
target_compile_options(octet_options INTERFACE $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-heapsize=524288>)
if(OCTET_SANITIZE)
  target_compile_options(octet_options INTERFACE -fsanitize=${OCTET_SANITIZE} -fno-omit-frame-pointer -g1 -fno-sanitize-recover=all)
  target_link_options(octet_options INTERFACE -fsanitize=${OCTET_SANITIZE})
endif()
# The suite threads runs for seconds and is compiled for minutes. The other sanitizers' suites take three times as long so.
if(OCTET_SANITIZE STREQUAL "thread")
  set(octet_quick -O0)
endif()
if(OCTET_FUZZ)
  target_compile_options(octet_options INTERFACE -fsanitize=fuzzer-no-link)
endif()
# Never -O0 in folders of kernels: which targets Highway dispatches to depends on the file, and only inlined does it stay that file's.
if(OCTET_COVERAGE)
  target_compile_options(octet_options INTERFACE --coverage -fprofile-update=atomic -Og -g1)
  target_link_options(octet_options INTERFACE --coverage)
endif()
# Paths relative to the source tree: what one build folder compiled, another finds.
find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}
    CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE})
endif()
