// What follows a primary expression: attributes, items, calls, filters, tests.
#include "text/jinja/parser.h"

namespace octet::jinja {

ExprPtr Parser::postfix(ExprPtr expr) {
  while (true) {
    if (now().is_op(".") || now().is_op("[")) {
      expr = subscript(std::move(expr));
    } else if (now().is_op("(")) {
      expr = call(std::move(expr));
    } else {
      return expr;
    }
  }
}

ExprPtr Parser::filters_and_tests(ExprPtr expr) {
  while (true) {
    if (now().is_op("|")) {
      expr = filter_chain(std::move(expr), false);
    } else if (now().is_name("is")) {
      expr = test(std::move(expr));
    } else if (now().is_op("(")) {
      expr = call(std::move(expr));
    } else {
      return expr;
    }
  }
}

ExprPtr Parser::subscript(ExprPtr expr) {
  const Token& open = take();
  if (open.text == "[") return item(std::move(expr), open.line);
  if (now().is(TokenKind::integer)) {
    ExprPtr index = make(ExprKind::constant, now().line);
    index->constant = take().integer;
    return join(ExprKind::item, open.line, std::move(expr), std::move(index));
  }
  ExprPtr attribute = make(ExprKind::attribute, open.line);
  attribute->text = take_name();
  adopt(*attribute, std::move(expr));
  return attribute;
}

ExprPtr Parser::item(ExprPtr expr, int line) {
  ExprPtr parts[3];
  int n_colons = 0;
  if (!now().is_op(":")) parts[0] = expression();
  while (n_colons < 2 && skip_op(":")) {
    ++n_colons;
    if (!now().is_op(":") && !now().is_op("]") && !now().is_op(",")) {
      parts[n_colons] = expression();
    }
  }
  if (now().is_op(",")) {
    if (n_colons > 0) fail("a slice among several subscripts is outside the supported subset");
    ExprPtr key = make(ExprKind::tuple, line);
    adopt(*key, std::move(parts[0]));
    while (skip_op(",")) adopt(*key, expression());
    parts[0] = std::move(key);
  }
  expect_op("]");
  if (n_colons == 0) return join(ExprKind::item, line, std::move(expr), std::move(parts[0]));
  ExprPtr slice = make(ExprKind::slice, line);
  adopt(*slice, std::move(expr));
  for (ExprPtr& part : parts) adopt(*slice, std::move(part));
  return slice;
}

ExprPtr Parser::call(ExprPtr expr) {
  ExprPtr call = make(ExprKind::call, now().line);
  adopt(*call, std::move(expr));
  call_arguments(*call);
  return call;
}

void Parser::call_arguments(Expr& call) {
  CallArguments& to = call.arguments;
  const auto measured = [&](ExprPtr child) {
    call.depth = std::max(call.depth, child->depth + 1);
    return child;
  };
  const auto ensure = [&](bool holds) {
    if (!holds) fail("arguments of a call are in the wrong order");
  };
  expect_op("(");
  bool needs_comma = false;
  while (!now().is_op(")")) {
    if (needs_comma) expect_op(",");
    if (now().is_op(")")) break;
    needs_comma = true;
    if (skip_op("*")) {
      ensure(!to.star && !to.star_star);
      to.star = measured(expression());
    } else if (skip_op("**")) {
      ensure(!to.star_star);
      to.star_star = measured(expression());
    } else if (now().is(TokenKind::name) && after().is_op("=")) {
      ensure(!to.star_star);
      std::string key = take_name();
      take();
      to.named.emplace_back(std::move(key), measured(expression()));
    } else {
      ensure(!to.star && !to.star_star && to.named.empty());
      to.positional.push_back(measured(expression()));
    }
  }
  expect_op(")");
}

ExprPtr Parser::filter(ExprPtr expr) {
  ExprPtr filter = make(ExprKind::filter, now().line);
  filter->text = take_name();
  while (skip_op(".")) filter->text += "." + take_name();
  filter->filter = find_filter(filter->text);
  const bool is_known = filter->filter != nullptr;
  if (!is_known && is_unsupported_filter(filter->text)) {
    if (soft_ == 0) fail("filter '" + filter->text + "' is outside the supported subset");
  } else if (!is_known && soft_ == 0) {
    fail("there is no filter '" + filter->text + "'");
  }
  adopt(*filter, std::move(expr));
  if (now().is_op("(")) call_arguments(*filter);
  return filter;
}

// | a | b ..., or a | b ... after {% filter.
ExprPtr Parser::filter_chain(ExprPtr expr, bool begins_with_name) {
  if (begins_with_name) expr = filter(std::move(expr));
  while (skip_op("|")) expr = filter(std::move(expr));
  return expr;
}

ExprPtr Parser::test(ExprPtr expr) {
  const int line = take().line;
  const bool is_negated = skip_name("not");
  ExprPtr test = make(ExprKind::test, line);
  test->text = take_name();
  while (skip_op(".")) test->text += "." + take_name();
  test->test = find_test(test->text);
  if (test->test == nullptr && soft_ == 0) fail("there is no test '" + test->text + "'");
  adopt(*test, std::move(expr));
  const bool is_operator = now().is_name("else") || now().is_name("or") || now().is_name("and");
  const bool is_argument = now().is(TokenKind::name) || now().is(TokenKind::string) ||
                           now().is(TokenKind::integer) || now().is(TokenKind::real) ||
                           now().is_op("[") || now().is_op("{");
  if (now().is_op("(")) {
    call_arguments(*test);
  } else if (is_argument && !is_operator) {
    if (now().is_name("is")) fail("tests cannot be chained with is");
    ExprPtr argument = postfix(primary());
    test->depth = std::max(test->depth, argument->depth + 1);
    test->arguments.positional.push_back(std::move(argument));
  }
  if (!is_negated) return test;
  ExprPtr negated = make(ExprKind::logical_not, line);
  adopt(*negated, std::move(test));
  return negated;
}

}  // namespace octet::jinja
