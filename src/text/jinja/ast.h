// The tree of a template: expressions and statements as Jinja's parser groups them.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/builtins.h"
#include "text/jinja/operations.h"

namespace octet::jinja {

inline constexpr std::string_view kStar = "*";  // the key of an argument whose items are arguments

struct Expr;
using ExprPtr = Expr*;  // into the tree's

enum class ExprKind {
  constant,
  name,
  namespace_target,  // ns.attribute, to be assigned
  list,
  tuple,
  dict,       // children: key, value, key, value ...
  attribute,  // children[0].children[1]
  item,       // children[0][children[1]]
  slice,      // children[0][1:2:3]; each of the three may be null
  call,       // children[0](arguments)
  filter,     // children[0] | name(arguments); a null child stands for a block's text
  test,       // children[0] is name(arguments)
  negative,
  logical_not,
  logical_and,
  logical_or,
  arithmetic,   // by ops[0]
  comparison,   // children[0] ops[0] children[1] ops[1] ...
  concat,       // ~
  conditional,  // children[0] if children[1] else children[2], which may be null
};

struct Expr {
  ExprKind kind = ExprKind::constant;
  int line = 0;
  int depth = 1;  // of the tree below
  int name = -1;  // of a name or a namespace: its number in the template's table
  std::string text;
  Value constant;
  std::vector<Operator> ops;
  std::vector<ExprPtr> children;
  std::vector<std::pair<std::string, ExprPtr>> arguments;  // key=value; "": by position; kStar
  const Builtin* builtin = nullptr;  // of a filter or test; null: unknown, an error where reached
};

struct Stmt;
using Body = std::vector<std::unique_ptr<Stmt>>;

enum class StmtKind {
  output,        // exprs
  assign,        // target = value
  assign_block,  // target = text of body, through `value`, a filter, where there is one
  loop,          // for target in value if test
  branch,        // branches, else_body
  macro,         // name(parameters): body
  call_block,    // body as caller() of value, a call
  filter_block,  // body through value
  generation,    // body is what the model said
  break_loop,
  continue_loop,
};

struct Parameter {
  int name = -1;
  std::string text;
  ExprPtr fallback = nullptr;
};

struct Branch {
  ExprPtr condition = nullptr;
  Body body;
};

struct Stmt {
  StmtKind kind = StmtKind::output;
  int line = 0;
  std::string text;  // the name of a macro
  int name = -1;
  ExprPtr target = nullptr, value = nullptr, test = nullptr;
  std::vector<ExprPtr> exprs;
  std::vector<Branch> branches;
  std::vector<Parameter> parameters;
  Body body, else_body;
  bool uses_caller = false;  // a macro whose body reads `caller`
};

// The names that mean something by themselves, in the order of every tree's table.
inline constexpr const char* kSpecialNames[] = {"loop", "caller"};
inline constexpr int kLoop = 0, kCaller = 1;

struct Tree {
  std::vector<std::string> names;
  std::deque<Expr> exprs;  // of all statements
  Body body;
  // Variables that the top of the template assigns before it reads them: until then inner scopes
  // see them undefined, not the variables that the template is given.
  std::vector<int> assigned_first;
  bool has_generation = false;
};

}  // namespace octet::jinja
