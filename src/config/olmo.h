// An OLMo training file (allenai/OLMo, one YAML) as a configuration of a run.
//
// Each key is used, has no meaning here (what is logged, where it is saved, which devices run it),
// or changes what is trained in a way that a run does not have. The last are an error that lists
// them all, unless `without` names them; then they are listed. A key that is absent or null has
// OLMo's default (olmo/config.py), not that of a run: save_interval: null saves every 1,000 steps.
// Only of embedding_size null is another value, vocab_size.
#pragma once

#include <string>
#include <vector>

namespace octet {

struct OlmoImport {
  std::string yaml;                     // as load_config() reads it
  std::vector<std::string> left_out;    // "KEY: VALUE", of `without`, each on one line
  std::vector<std::string> no_meaning;  // names of keys
};

// `name` stands for the file in messages. Throws Error{invalid_argument} for what is no such file,
// for duplicate keys and values that are none of their keys or keep a "${...}" that no key of the
// file resolves, for keys that a run does not have (above), and for names in `without` that are not
// among them.
OlmoImport import_olmo(const std::string& text, const std::string& name,
                       const std::vector<std::string>& without = {});

}  // namespace octet
