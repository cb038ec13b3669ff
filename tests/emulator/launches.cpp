#include "launches.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

namespace emulator {
namespace {

bool g_notes = false;
std::string g_noted;  // names, a line each

// "void octet::cuda::(anonymous namespace)::norm_rows<true>(octet::cuda::LayerArgs)" -> "norm_rows"
std::string base_name(const char* symbol) {
  int status = 0;
  char* const demangled = abi::__cxa_demangle(symbol, nullptr, nullptr, &status);
  std::string name = demangled == nullptr ? symbol : demangled;
  std::free(demangled);
  const std::string unnamed = "(anonymous namespace)::";
  for (size_t at; (at = name.find(unnamed)) != std::string::npos;) name.erase(at, unnamed.size());
  name.erase(std::min(name.find_first_of("<("), name.size()));
  const size_t before = name.find_last_of(": ");
  return before == std::string::npos ? name : name.substr(before + 1);
}

// The functions of this library by their addresses in it: kernels are local symbols, which dladdr
// does not know.
std::map<uint64_t, std::string> read_functions(const char* path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {});
  const auto at = [&]<typename T>(uint64_t offset, T& value) {
    if (offset + sizeof(T) > bytes.size()) std::abort();
    std::memcpy(&value, bytes.data() + offset, sizeof(T));
  };
  Elf64_Ehdr head;
  at(0, head);
  std::map<uint64_t, std::string> functions;
  for (int i = 0; i < head.e_shnum; ++i) {
    Elf64_Shdr table, strings;
    at(head.e_shoff + static_cast<uint64_t>(i) * sizeof(table), table);
    if (table.sh_type != SHT_SYMTAB) continue;
    at(head.e_shoff + table.sh_link * sizeof(strings), strings);
    for (uint64_t k = 0; k < table.sh_size / sizeof(Elf64_Sym); ++k) {
      Elf64_Sym symbol;
      at(table.sh_offset + k * sizeof(symbol), symbol);
      if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC) continue;
      functions[symbol.st_value] = bytes.data() + strings.sh_offset + symbol.st_name;
    }
  }
  return functions;
}

}  // namespace

std::string_view name_of(const void* kernel) {
  if (!g_notes) return {};
  Dl_info self;
  if (dladdr(reinterpret_cast<const void*>(&read_functions), &self) == 0) std::abort();
  static const auto functions = read_functions(self.dli_fname);
  static std::map<uint64_t, std::string> names;
  const auto at = reinterpret_cast<uint64_t>(kernel) - reinterpret_cast<uint64_t>(self.dli_fbase);
  const auto [name, is_new] = names.try_emplace(at);
  if (is_new) {
    const auto found = functions.find(at);
    name->second = found == functions.end() ? "?" : base_name(found->second.c_str());
  }
  return name->second;
}

void note_launch(std::string_view name) {
  if (g_notes) g_noted.append(name).append("\n");
}

}  // namespace emulator

// Begins to note launches, and gives those noted since then and notes no more.
extern "C" __attribute__((visibility("default"))) void octet_emulated_note_launches() {
  emulator::g_noted.clear();
  emulator::g_notes = true;
}
extern "C" __attribute__((visibility("default"))) const char* octet_emulated_launches() {
  emulator::g_notes = false;
  return emulator::g_noted.c_str();
}
