# Debian packages. Each is wrapped by one interface target, so that folders name what they use.
find_package(fmt REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(Threads REQUIRED)
find_package(LibLZMA REQUIRED)
find_package(ZLIB REQUIRED)
find_package(BZip2 REQUIRED)
find_package(PNG REQUIRED)
find_package(JPEG REQUIRED)
if(OCTET_TESTS)
  find_package(GTest REQUIRED)
endif()

# Debian's dnnl-config.cmake insists on OpenCL's headers, which the CPU engine does not need: link the library itself.
find_library(OCTET_DNNL_LIBRARY dnnl REQUIRED)
find_path(OCTET_DNNL_INCLUDE dnnl.hpp REQUIRED)
add_library(octet_dnnl INTERFACE)
target_link_libraries(octet_dnnl INTERFACE ${OCTET_DNNL_LIBRARY} gomp)
target_include_directories(octet_dnnl SYSTEM INTERFACE ${OCTET_DNNL_INCLUDE})

find_library(OCTET_HWY_LIBRARY hwy REQUIRED)
add_library(octet_hwy INTERFACE)
target_link_libraries(octet_hwy INTERFACE ${OCTET_HWY_LIBRARY})

# Headers alone.
find_package(Eigen3 3.4 REQUIRED NO_MODULE)
add_library(octet_eigen INTERFACE)
target_link_libraries(octet_eigen INTERFACE Eigen3::Eigen)

# Checksums; text: words by regular expressions, Unicode's tables, SentencePiece's models; zstd. Debian has no CMake files
# for them, or of several kinds.
foreach(library IN ITEMS xxhash:xxhash:xxhash.h pcre2:pcre2-8:pcre2.h utf8proc:utf8proc:utf8proc.h
        sentencepiece:sentencepiece:sentencepiece_processor.h zstd:zstd:zstd.h)
  string(REPLACE ":" ";" library ${library})
  list(GET library 0 name)
  list(GET library 1 file)
  list(GET library 2 header)
  find_library(OCTET_${name}_LIBRARY ${file} REQUIRED)
  find_path(OCTET_${name}_INCLUDE ${header} REQUIRED)
  add_library(octet_${name} INTERFACE)
  target_link_libraries(octet_${name} INTERFACE ${OCTET_${name}_LIBRARY})
  target_include_directories(octet_${name} SYSTEM INTERFACE ${OCTET_${name}_INCLUDE})
endforeach()

# HTTP, of servers. The layout of its classes follows these definitions (its pkg-config file has them).
find_library(OCTET_HTTPLIB_LIBRARY cpp-httplib REQUIRED)
find_path(OCTET_HTTPLIB_INCLUDE httplib.h REQUIRED)
add_library(octet_httplib INTERFACE)
target_link_libraries(octet_httplib INTERFACE ${OCTET_HTTPLIB_LIBRARY})
target_include_directories(octet_httplib SYSTEM INTERFACE ${OCTET_HTTPLIB_INCLUDE})
target_compile_definitions(octet_httplib INTERFACE CPPHTTPLIB_OPENSSL_SUPPORT CPPHTTPLIB_ZLIB_SUPPORT CPPHTTPLIB_BROTLI_SUPPORT)

# Of C alone: only liboctet_mpi.so is linked with it. Without it, that is not built, and ranks meet over TCP.
set(MPI_CXX_SKIP_MPICXX ON)
find_package(MPI QUIET COMPONENTS CXX)

# The charts of pages (cli/charts.js): a text that the program embeds.
find_path(OCTET_DYGRAPHS dygraph.min.js PATHS /usr/share/javascript/dygraphs NO_DEFAULT_PATH)
if(NOT OCTET_DYGRAPHS OR NOT EXISTS "${OCTET_DYGRAPHS}/dygraph.min.js")
  message(FATAL_ERROR "octet: expected dygraph.min.js of Debian's package libjs-dygraphs in /usr/share/javascript/dygraphs, "
    "got none: run tools/setup.sh, or name its folder by -DOCTET_DYGRAPHS=DIR")
endif()
