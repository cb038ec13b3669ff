#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/recipe_files.h"

namespace octet {
namespace {

// In a line of its own where the name stands before it: what the first clause says.
std::string first_clause(const std::string& about) {
  const size_t end = std::min(about.find_first_of(":;("), about.find(". "));
  std::string clause = about.substr(0, end);
  while (!clause.empty() && (clause.back() == ' ' || clause.back() == '.')) clause.pop_back();
  return clause;
}

void list_recipes(const GlobalOptions& options) {
  Table table{{"recipe", "what"}, {}};
  if (options.json) table.columns.push_back("file");
  for (const RecipeFile& recipe : recipe_files()) {
    table.rows.push_back({recipe.name, options.json ? recipe.about : first_clause(recipe.about)});
    if (options.json) table.rows.back().push_back(recipe.path);
  }
  if (table.rows.empty()) {
    throw Error(ErrorCode::invalid_argument,
                "[recipes] expected recipes/ beside the program, or share/octet/recipes in the "
                "prefix that it is installed in, got neither");
  }
  print_table(options, table);
}

}  // namespace

void add_recipes_command(CLI::App& app, GlobalOptions& options) {
  app.add_subcommand("recipes",
                     "list the configurations that come with the program: `octet train NAME`")
      ->callback([&options] { list_recipes(options); });
}

}  // namespace octet
