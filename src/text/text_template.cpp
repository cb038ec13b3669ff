#include "text/text_template.h"

namespace octet {
namespace {

using Kind = TemplatePart::Kind;

TemplatePart token(int32_t id, int32_t type = 0) {
  return {Kind::token, id, type};
}
TemplatePart first() {
  return {Kind::first_text};
}
TemplatePart second(int32_t type) {
  return {Kind::second_text, -1, type};
}

}  // namespace

std::vector<int32_t> tokens_before(const std::vector<TemplatePart>& single) {
  std::vector<int32_t> ids;
  for (const TemplatePart& part : single) {
    if (part.kind != Kind::token) break;
    ids.push_back(part.id);
  }
  return ids;
}

std::vector<int32_t> tokens_behind(const std::vector<TemplatePart>& single) {
  std::vector<int32_t> ids;
  for (const TemplatePart& part : single) {
    if (part.kind == Kind::token) {
      ids.push_back(part.id);
    } else {
      ids.clear();
    }
  }
  return ids;
}

TextTemplate bert_template(int32_t cls, int32_t sep) {
  return {{token(cls), first(), token(sep)},
          {token(cls), first(), token(sep), second(1), token(sep, 1)}};
}

TextTemplate roberta_template(int32_t cls, int32_t sep) {
  return {{token(cls), first(), token(sep)},
          {token(cls), first(), token(sep), token(sep), second(0), token(sep)}};
}

TextTemplate bare_template() {
  return {{first()}, {first(), second(1)}};
}

}  // namespace octet
