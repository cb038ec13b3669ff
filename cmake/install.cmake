# `cmake --install BUILD --prefix PREFIX`: the program, its recipes, documents, completions and manual; the shared library
# with include/octet, for find_package(octet) and pkg-config.
set(CMAKE_INSTALL_LIBDIR lib CACHE PATH "libraries")  # where the program looks for its modules, on every system
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set_target_properties(octet PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
install(TARGETS octet RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
# Where the program alone was built, the library is left out.
install(TARGETS octet_shared EXPORT octet OPTIONAL LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT octet NAMESPACE octet:: FILE octetTargets.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/octet)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/octet DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

set(made ${PROJECT_BINARY_DIR}/install)
# The headers need the standard library alone, and the shared library names what it is linked with: users find nothing more.
file(WRITE ${made}/octetConfig.cmake [[include("${CMAKE_CURRENT_LIST_DIR}/octetTargets.cmake")
]])
write_basic_package_version_file(${made}/octetConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${made}/octetConfig.cmake ${made}/octetConfigVersion.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/octet)
file(CONFIGURE OUTPUT ${made}/octet.pc @ONLY CONTENT [[prefix=${pcfiledir}/../..
Name: octet
Description: training, fine-tuning and quantization of models in 8 bits; needs C++20
Version: @PROJECT_VERSION@
Cflags: -I${prefix}/@CMAKE_INSTALL_INCLUDEDIR@
Libs: -L${prefix}/@CMAKE_INSTALL_LIBDIR@ -loctet
]])
install(FILES ${made}/octet.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# Opened at run time where they are built.
install(FILES ${PROJECT_BINARY_DIR}/liboctet_mpi.so ${PROJECT_BINARY_DIR}/cuda/liboctet_cuda.so
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/octet OPTIONAL)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/recipes DESTINATION ${CMAKE_INSTALL_DATADIR}/octet)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES README.md CHANGELOG.md THIRD_PARTY_NOTICES.md DESTINATION ${CMAKE_INSTALL_DOCDIR})

# What the program says of itself.
install(CODE "set(octet_docs \"$<TARGET_FILE:octet>\" docs)\nset(octet_made \"${made}\")")
install(CODE [[
  execute_process(COMMAND ${octet_docs} completion bash OUTPUT_FILE ${octet_made}/octet.bash COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND ${octet_docs} completion zsh OUTPUT_FILE ${octet_made}/_octet COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND ${octet_docs} man OUTPUT_FILE ${octet_made}/octet.1 COMMAND_ERROR_IS_FATAL ANY)
]])
install(FILES ${made}/octet.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME octet)
install(FILES ${made}/_octet DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES ${made}/octet.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
