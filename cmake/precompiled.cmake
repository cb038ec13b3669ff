# Precompiled headers: what most files read of the standard library and of the libraries, read once. Off where ccache
# serves the builds: it would find nothing again.
if(CCACHE)
  set(pch_default OFF)
else()
  set(pch_default ON)
endif()
option(OCTET_PCH "precompile the headers that most files read" ${pch_default})

set(octet_pch_headers <algorithm> <cmath> <cstdint> <cstring> <functional> <map> <memory> <optional> <span> <string>
  <string_view> <utility> <variant> <vector> <fmt/format.h>)

# A target of its own that makes them with these headers and libraries: octet_pch_target(<name> [HEADERS ...] [LIBS ...])
function(octet_pch_target name)
  cmake_parse_arguments(ARG "" "" "HEADERS;LIBS" ${ARGN})
  if(OCTET_PCH)
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/${name}.cpp CONTENT "")
    add_library(${name} OBJECT ${PROJECT_BINARY_DIR}/${name}.cpp)
    target_link_libraries(${name} PRIVATE octet_options fmt::fmt ${ARG_LIBS})
    target_precompile_headers(${name} PRIVATE ${octet_pch_headers} ${ARG_HEADERS})
  endif()
endfunction()

# octet_precompile(<target> <name>): the target reads what `name` made.
function(octet_precompile target name)
  if(OCTET_PCH)
    target_precompile_headers(${target} REUSE_FROM ${name})
  endif()
endfunction()
