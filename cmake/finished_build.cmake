# `pip install .` beside a finished build: its libraries and its program, brought up to date and taken as they are, so that
# the bindings alone are compiled. octet_finished_build(): what every build leaves for that in octet_targets.cmake.
function(octet_finished_build)
  set(file ${PROJECT_BINARY_DIR}/octet_targets.cmake)
  if(NOT CMAKE_BUILD_TYPE STREQUAL Release OR OCTET_SANITIZE OR OCTET_COVERAGE OR OCTET_FUZZ)
    file(REMOVE ${file})
    return()
  endif()
  get_property(folders GLOBAL PROPERTY octet_folders)
  export(TARGETS octet octet_options octet_dnnl octet_hwy octet_eigen octet_xxhash octet_pcre2 octet_utf8proc
    octet_sentencepiece octet_zstd ${folders} FILE ${file})
endfunction()

# Whether `folder` is such a build, of these sources: set in `result`.
function(octet_has_finished_build folder result)
  set(${result} FALSE PARENT_SCOPE)
  if(EXISTS ${folder}/octet_targets.cmake AND EXISTS ${folder}/CMakeCache.txt)
    load_cache(${folder} READ_WITH_PREFIX finished_ CMAKE_HOME_DIRECTORY)
    if(finished_CMAKE_HOME_DIRECTORY STREQUAL PROJECT_SOURCE_DIR)
      set(${result} TRUE PARENT_SCOPE)
    endif()
  endif()
endfunction()

macro(octet_take_finished_build folder)
  message(STATUS "octet: brings ${folder} up to date, and takes its objects")
  execute_process(COMMAND ${CMAKE_COMMAND} --build ${folder} --target octet COMMAND_ERROR_IS_FATAL ANY)
  foreach(package IN ITEMS fmt yaml-cpp nlohmann_json Threads LibLZMA ZLIB BZip2 PNG JPEG)
    find_package(${package} REQUIRED)
  endforeach()
  find_package(Eigen3 3.4 REQUIRED NO_MODULE)
  include(${folder}/octet_targets.cmake)
endmacro()
