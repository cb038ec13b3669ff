#include "library/program_files.h"

#include <dlfcn.h>
#include <sys/auxv.h>

namespace octet {
namespace {

// Without /proc, the name that the program was started by: the system took it from there, so that
// it leads to the program, if it leads anywhere.
std::filesystem::path program_path() {
  std::error_code error;
  std::filesystem::path known = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) return known;
  const auto* name = reinterpret_cast<const char*>(::getauxval(AT_EXECFN));
  return name == nullptr ? std::filesystem::path() : std::filesystem::canonical(name, error);
}

}  // namespace

std::filesystem::path program_folder() {
  Dl_info image;
  if (::dladdr(reinterpret_cast<const void*>(&program_folder), &image) != 0) {
    const std::filesystem::path name = image.dli_fname;
    std::error_code error;
    // The loader's name of a program is what its caller said, so that it is not asked for that.
    if (name.filename().native().starts_with("liboctet.so"))
      return std::filesystem::canonical(name, error).parent_path();
  }
  return program_path().parent_path();
}

std::string beside_program(std::initializer_list<const char*> paths) {
  const std::filesystem::path folder = program_folder();
  if (!folder.is_absolute()) return "";
  std::error_code error;
  for (const char* path : paths) {
    if (std::filesystem::exists(folder / path, error)) return (folder / path).lexically_normal();
  }
  return "";
}

}  // namespace octet
