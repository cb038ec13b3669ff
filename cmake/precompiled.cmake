# Precompiled headers: what most files read of the standard library and of the libraries, read once.
option(OCTET_PCH "precompile the headers that most files read" ON)
if(OCTET_PCH AND CCACHE)
  # ccache looks them up by what they hold.
  target_compile_options(octet_options INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>
    "$<$<COMPILE_LANG_AND_ID:CXX,Clang>:SHELL:-Xclang -fno-pch-timestamp>")
endif()

set(octet_pch_headers <algorithm> <cmath> <cstdint> <cstring> <functional> <map> <memory> <optional> <span> <string>
  <string_view> <utility> <variant> <vector> <fmt/format.h>)

# A target of its own that makes them with these headers and libraries: octet_pch_target(<name> [HEADERS ...] [LIBS ...])
function(octet_pch_target name)
  cmake_parse_arguments(ARG "" "" "HEADERS;LIBS" ${ARGN})
  if(OCTET_PCH)
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/${name}.cpp CONTENT "")
    add_library(${name} OBJECT ${PROJECT_BINARY_DIR}/${name}.cpp)
    target_link_libraries(${name} PRIVATE octet_options fmt::fmt ${ARG_LIBS})
    target_compile_options(${name} PRIVATE ${octet_quick})
    target_precompile_headers(${name} PRIVATE ${octet_pch_headers} ${ARG_HEADERS})
  endif()
endfunction()

# octet_precompile(<target> <name>): the target reads what `name` made.
function(octet_precompile target name)
  if(OCTET_PCH)
    target_precompile_headers(${target} REUSE_FROM ${name})
  endif()
endfunction()

# octet_unity(<target> [batch]): its sources are compiled some at a time, as one, so that headers are read and templates are
# compiled once for all of them. Highway's files compile themselves once for each instruction set and stay alone.
option(OCTET_UNITY "compile sources some at a time" ON)
set(OCTET_UNITY_BATCH 16 CACHE STRING "how many; 0: a whole folder")
function(octet_unity target)
  if(NOT OCTET_UNITY)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    file(STRINGS ${source} alone REGEX "foreach_target\\.h" LIMIT_COUNT 1)
    if(alone)
      set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  endforeach()
  set(batch ${OCTET_UNITY_BATCH})
  if(ARGC GREATER 1)
    set(batch ${ARGV1})
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${batch})
  # A file's own types are its own there too: the warning takes the file for a header.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endfunction()
