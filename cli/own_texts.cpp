#include "cli/own_texts.h"

#include "library/program_files.h"

namespace octet {

std::vector<std::string> own_texts() {
  std::vector<std::string> paths = {"README.md", "docs", "src", "cli", "tests", "tools"};
  if (const std::string documents = beside_program({"../share/doc/octet"}); !documents.empty())
    paths.push_back(documents);
  paths.emplace_back("/usr/include");
  return paths;
}

}  // namespace octet
