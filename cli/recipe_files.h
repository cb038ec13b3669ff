// The configurations that come with the program, by name: `octet train llama-3m`.
#pragma once

#include <string>
#include <vector>

namespace octet {

struct RecipeFile {
  std::string name;   // the file's, without .yaml
  std::string path;   // absolute
  std::string about;  // its first comment
};

// Recipes of recipes/ beside the program, or of share/octet/recipes in the prefix of its
// installation, sorted by name; folders within come after. Empty where neither is there.
std::vector<RecipeFile> recipe_files();

// The file that a CONFIG of the command line means: itself where it exists, has a slash or ends as
// YAML and JSON do; else the recipe of this name. Throws Error{invalid_argument}, which names the
// nearest one, where there is none, and what a folder is in its place.
std::string config_path(const std::string& config);

}  // namespace octet
