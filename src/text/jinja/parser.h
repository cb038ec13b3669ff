// Tokens to a tree. Jinja's grammar; what is outside the supported subset is refused by name.
#pragma once

#include <initializer_list>
#include <string_view>

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

namespace octet::jinja {

// Throws Error{bad_data}, "[template] line N: ...".
Tree parse(std::string_view source);

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens);
  Tree run();

 private:
  // Tokens.
  const Token& now() const { return tokens_[at_]; }
  const Token& after() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  const Token& take();
  bool skip_op(std::string_view op);
  bool skip_name(std::string_view name);
  void expect_op(std::string_view op);
  void expect_name(std::string_view name);
  void expect(TokenKind kind, const char* what);
  std::string take_name();
  [[noreturn]] void fail(const std::string& what) const;
  [[noreturn]] void fail_unexpected(const std::string& expected) const;
  int name_number(const std::string& name);

  // Guards recursion, and the depth of trees that grow without it.
  class Depth;
  ExprPtr make(ExprKind kind, int line) const;
  void adopt(Expr& parent, ExprPtr child) const;
  ExprPtr join(ExprKind kind, int line, ExprPtr left, ExprPtr right) const;

  // Expressions (parse_expression.cpp).
  enum class Conditional { allowed, refused };
  ExprPtr expression(Conditional conditional = Conditional::allowed);
  ExprPtr conditional_expression();
  ExprPtr or_expression();
  ExprPtr and_expression();
  ExprPtr not_expression();
  ExprPtr comparison();
  ExprPtr sum();
  ExprPtr concatenation();
  ExprPtr product();
  ExprPtr power();
  ExprPtr unary(bool with_filter = true);
  ExprPtr primary(bool with_namespace = false);
  ExprPtr name_or_constant(bool with_namespace);
  ExprPtr postfix(ExprPtr expr);
  ExprPtr filters_and_tests(ExprPtr expr);
  ExprPtr subscript(ExprPtr expr);
  ExprPtr item(ExprPtr expr, int line);
  ExprPtr call(ExprPtr expr);
  void call_arguments(Expr& call);
  ExprPtr filter(ExprPtr expr);
  ExprPtr filter_chain(ExprPtr expr, bool begins_with_name);
  ExprPtr test(ExprPtr expr);
  ExprPtr list();
  ExprPtr dict();
  struct TupleRules {
    bool is_simple = false;  // names and literals alone
    bool with_namespace = false;
    bool is_explicit = false;  // in parentheses
    Conditional conditional = Conditional::allowed;
    std::string_view end = {};  // a name that ends it
  };
  ExprPtr tuple(const TupleRules& rules);
  ExprPtr assign_target(bool with_namespace, std::string_view end = {});
  void check_target(const Expr& target) const;

  // Statements (parse_statement.cpp).
  using EndTags = std::initializer_list<std::string_view>;
  Body body_until(EndTags ends);             // leaves the end tag's name as the token
  Body statements(EndTags ends);             // from the end of the tag that opens the body
  Body statements_to(std::string_view end);  // and past the name of the end tag
  StmtPtr make(StmtKind kind) const;
  StmtPtr statement();
  StmtPtr for_statement();
  StmtPtr if_statement();
  StmtPtr set_statement();
  StmtPtr with_statement();
  StmtPtr macro_statement();
  StmtPtr call_statement();
  StmtPtr filter_statement();
  StmtPtr block_statement();
  StmtPtr generation_statement();
  StmtPtr print_statement();
  StmtPtr loop_control(StmtKind kind);
  void signature(Stmt& stmt);

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
  int soft_ = 0;   // within an if: what is unknown is an error only where it is reached
  int loops_ = 0;  // that break and continue may leave
  Tree tree_;
};

}  // namespace octet::jinja
