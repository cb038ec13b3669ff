# Debian packages. Each is wrapped by one interface target, so that folders name what they use.
find_package(fmt REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(Threads REQUIRED)
find_package(LibLZMA REQUIRED)
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
