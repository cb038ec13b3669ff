# octet_embed(<target> <kName> <file>): the file's text as `extern const std::string_view kName` of namespace octet, in a
# source that the target compiles. Without the line that names a source map, which nothing would find.
function(octet_embed target name file)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(READ ${file} text)
  string(REGEX REPLACE "\n?(//|/\\*)# sourceMappingURL=[^\n]*" "" text "${text}")
  string(FIND "${text}" ")embedded\"" end)
  if(NOT end EQUAL -1)
    message(FATAL_ERROR "octet_embed: ${file}: expected a text without )embedded\"")
  endif()
  set(source ${CMAKE_CURRENT_BINARY_DIR}/embedded/${name}.cpp)
  file(CONFIGURE OUTPUT ${source} @ONLY CONTENT [[#include <string_view>
namespace octet {
extern const std::string_view @name@;
static const char @name@Text[] = R"embedded(@text@)embedded";
constinit const std::string_view @name@(@name@Text, sizeof @name@Text - 1);
}  // namespace octet
]])
  target_sources(${target} PRIVATE ${source})
endfunction()
