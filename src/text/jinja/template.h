// Chat templates: an own subset of Jinja 3.1 with the settings of Hugging Face's transformers
// (trim_blocks, lstrip_blocks, loop controls, {% generation %}, tojson without HTML escapes) and
// the semantics of its immutable sandbox. docs/chat_templates.md lists the subset.
//
// A Template is immutable and may be rendered from several threads at a time.
//
// Errors: Error{bad_data}, "[template] line N: WHAT"; TemplateRefusal (runtime.h) where the
// template calls raise_exception. Steps, memory, the size of the text and recursion are bounded.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ordered_json.h"
#include "text/jinja/ast.h"
#include "text/jinja/runtime.h"

namespace octet::jinja {

struct Rendered {
  std::string text;
  // Spans of {% generation %}, half open, in bytes, in the order in which the blocks end.
  std::vector<std::pair<size_t, size_t>> generations;
};

class Template {
 public:
  explicit Template(std::string_view source, const Limits& limits = input_limits().templates);

  // `variables`: an object; its keys in order are the template's variables.
  Rendered render(const OrderedJson& variables, const RenderOptions& options = {}) const;
  bool has_generation() const { return tree_.has_generation; }

 private:
  Tree tree_;
};

}  // namespace octet::jinja
