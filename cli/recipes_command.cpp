#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/files.h"
#include "base/printable.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/recipe_files.h"
#include "config/olmo.h"

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

struct OlmoFlags {
  std::string file;
  std::vector<std::string> without;
};

// The configuration, and as comments what it is without.
void print_olmo(const OlmoFlags& flags) {
  constexpr uint64_t kMaxBytes = uint64_t{64} << 20;
  const OlmoImport olmo =
      import_olmo(posix_files().read_stream(flags.file, kMaxBytes), flags.file, flags.without);
  const auto comment = [](const std::string& line) { return "# " + printable(line) + "\n"; };
  std::string text = comment(flags.file);
  for (const std::string& line : olmo.left_out) text += comment("left out: " + line);
  if (!olmo.no_meaning.empty())
    text += comment(fmt::format("without meaning here: {}", fmt::join(olmo.no_meaning, ", ")));
  write_out(text + olmo.yaml);
}

}  // namespace

void add_recipes_command(CLI::App& app, GlobalOptions& options) {
  CLI::App* recipes = app.add_subcommand(
      "recipes", "list the configurations that come with the program: `octet train NAME`");
  recipes->callback([recipes, &options] {
    if (recipes->get_subcommands().empty()) list_recipes(options);
  });
  CLI::App* olmo = recipes->add_subcommand(
      "olmo", "print a training file of OLMo's as a configuration: `octet recipes olmo A.yaml`");
  auto flags = std::make_shared<OlmoFlags>();
  olmo->add_option("file", flags->file, "OLMo's YAML")->required()->type_name("FILE");
  olmo->add_option("--without", flags->without,
                   "keys to leave out that a run does not have (an error lists them)")
      ->delimiter(',');
  olmo->callback([flags] { print_olmo(*flags); });
}

}  // namespace octet
