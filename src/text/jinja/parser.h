// Tokens to a tree. Jinja's grammar; what is outside the supported subset is refused by name.
#pragma once

#include <initializer_list>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "base/input_limits.h"
#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

namespace octet::jinja {

// Throws Error{bad_data}, "[template] line N: ...".
Tree parse(std::string_view source, const TemplateLimits& limits);

class Parser {
 public:
  Parser(std::vector<Token> tokens, const TemplateLimits& limits);
  Tree run();

 private:
  // Tokens.
  const Token& now() const { return tokens_[at_]; }
  const Token& after() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  const Token& take();
  bool is_op_or_name(std::string_view text) const {
    return now().is_op(text) || now().is_name(text);
  }
  bool skip(std::string_view op_or_name);
  void expect(std::string_view op_or_name) {
    if (!skip(op_or_name)) fail_unexpected("'" + std::string(op_or_name) + "'");
  }
  void expect(TokenKind kind, const char* what);
  std::string take_name();
  [[noreturn]] void fail(const std::string& what) const { fail_at(now().line, what); }
  [[noreturn]] void fail_unexpected(const std::string& expected) const;
  int name_number(const std::string& name);

  // Guards recursion, and the depth of trees that grow without it.
  class Depth;
  ExprPtr make(ExprKind kind, int line);
  ExprPtr constant(Value value, int line);
  void adopt(Expr& parent, ExprPtr child) const;
  ExprPtr join(ExprKind kind, int line, ExprPtr left, ExprPtr right = nullptr);

  // Expressions (parse_expression.cpp).
  ExprPtr expression(bool with_condition = true);
  ExprPtr binary(size_t level);
  ExprPtr negation();
  ExprPtr comparison();
  ExprPtr unary(bool with_filter = true);
  ExprPtr primary();
  ExprPtr name_or_constant();
  ExprPtr postfix(ExprPtr expr);
  ExprPtr subscript(ExprPtr expr);
  ExprPtr item(ExprPtr expr, int line);
  ExprPtr call(ExprPtr expr);
  void argument(Expr& call, std::string key, ExprPtr value) const;
  void call_arguments(Expr& call);
  void find(Expr& expr, Use use);  // the filter or test
  ExprPtr filter(ExprPtr expr);
  ExprPtr filters(ExprPtr expr);  // one and those behind bars
  ExprPtr test(ExprPtr expr);
  // Children until `close`, with commas between them; a dict's in pairs.
  ExprPtr bracketed(ExprKind kind, std::string_view close);
  ExprPtr tuple(bool with_condition = true, bool is_explicit = false);
  ExprPtr target(bool with_namespace);  // to assign to
  ExprPtr single_target(bool with_namespace);
  void store(int name);
  void store(const Expr& target);

  // Statements (parse_statement.cpp).
  using EndTags = std::initializer_list<std::string_view>;
  Stmt& add(Body& body, StmtKind kind) const;
  Body body_until(EndTags ends);                           // leaves the end tag's name as the token
  Body statements(EndTags ends, bool opens_scope = true);  // from the end of the opening tag
  Body statements_to(std::string_view end);                // and past the name of the end tag
  void statement(Stmt& stmt);
  void for_statement(Stmt& stmt);
  void if_statement(Stmt& stmt);
  void set_statement(Stmt& stmt);
  // {% macro %}, {% call %} and {% generation %}.
  void macro_statement(Stmt& stmt, std::string_view end);
  void signature(Stmt& stmt);

  const std::vector<Token> tokens_;
  const TemplateLimits limits_;
  size_t at_ = 0;
  int depth_ = 0;
  int scopes_ = 0, branches_ = 0;  // within which we are
  std::unordered_set<int> used_;   // names that the top of the template reads or assigns
  int loops_ = 0;                  // that break and continue may leave
  std::vector<Stmt*> macros_;      // within which we are
  std::unordered_map<std::string, int> numbers_;  // of names
  Tree tree_;
};

}  // namespace octet::jinja
