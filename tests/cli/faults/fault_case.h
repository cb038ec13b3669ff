// A line of tests/faults/*.yaml: bad input, the command that meets it, and what must come of it.
// tests/faults/README.md describes the files.
#pragma once

#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include <yaml-cpp/yaml.h>

#include "unit/base/scratch_folder.h"

namespace octet::test {

struct FaultCase {
  std::string topic;  // the file's name
  std::string name;
  YAML::Node files, edits;
  bool with_run = false;  // a finished run lies in run/
  std::string command;
  int code = 0;
  std::string err;  // all of standard error; {any} stands for any part of a line
};
inline void PrintTo(const FaultCase& fault, std::ostream* out) {
  *out << fault.topic << "/" << fault.name;
}

// All cases of all files of the folder; throws where one is not as the README says.
std::vector<FaultCase> load_faults(const std::string& folder);

// Makes what a `files` entry describes.
void make_file(const ScratchFolder& folder, const std::string& name, const YAML::Node& recipe);

// True if the text is the expected one, where {any} stands for any part of a line.
bool fits(std::string_view text, std::string_view expected);

// Changes one file as an `edits` entry says.
void apply_edit(const ScratchFolder& folder, const YAML::Node& edit);

}  // namespace octet::test
