#include "text/jinja/scopes.h"

#include <algorithm>
#include <functional>
#include <set>

#include "text/jinja/lexer.h"

namespace octet::jinja {
namespace {

class Symbols {
 public:
  explicit Symbols(const Symbols* parent) : parent_(parent) {}

  void load(int name) {
    if (!knows(name)) set(name, LoadAction::resolve);
  }
  void store(int name) {
    stores_.insert(name);
    if (find(name) != nullptr) return;
    set(name, is_outer(name) ? LoadAction::alias : LoadAction::undefined);
  }
  void parameter(int name) {
    stores_.insert(name);
    set(name, LoadAction::parameter);
  }
  // After an {% if %}: what some branch assigned may come from outside as well.
  void merge(const std::vector<Symbols>& branches) {
    std::set<int> stores;
    for (const Symbols& branch : branches)
      stores.insert(branch.stores_.begin(), branch.stores_.end());
    for (const int name : stores_) stores.erase(name);
    for (const Symbols& branch : branches) {
      for (const auto& [name, action] : branch.loads_) set(name, action);
      stores_.insert(branch.stores_.begin(), branch.stores_.end());
    }
    for (const int name : stores) {
      set(name, is_outer(name) ? LoadAction::alias : LoadAction::resolve);
    }
  }
  ScopePlan plan() const { return {loads_}; }

 private:
  LoadAction* find(int name) {
    for (auto& [known, action] : loads_) {
      if (known == name) return &action;
    }
    return nullptr;
  }
  void set(int name, LoadAction action) {
    if (LoadAction* known = find(name)) {
      *known = action;
    } else {
      loads_.emplace_back(name, action);
    }
  }
  bool is_outer(int name) const { return parent_ != nullptr && parent_->knows(name); }
  bool knows(int name) const {
    return std::any_of(loads_.begin(), loads_.end(),
                       [name](const auto& load) { return load.first == name; }) ||
           is_outer(name);
  }

  const Symbols* parent_;
  std::vector<std::pair<int, LoadAction>> loads_;
  std::set<int> stores_;
};

using OnName = std::function<void(const Expr&)>;

// The names of an expression, in the order in which they are evaluated.
void each_name(const Expr* expr, const OnName& on_name) {
  if (expr == nullptr) return;
  if (expr->name >= 0) on_name(*expr);
  for (const ExprPtr& child : expr->children) each_name(child.get(), on_name);
  for (const ExprPtr& value : expr->arguments.positional) each_name(value.get(), on_name);
  for (const auto& named : expr->arguments.named) each_name(named.second.get(), on_name);
  each_name(expr->arguments.star.get(), on_name);
  each_name(expr->arguments.star_star.get(), on_name);
}

void load(Symbols& symbols, const Expr* expr) {
  each_name(expr, [&](const Expr& name) { symbols.load(name.name); });
}

void store(Symbols& symbols, const Expr* target) {
  each_name(target, [&](const Expr& name) {
    if (name.kind == ExprKind::namespace_target) {
      symbols.load(name.name);
    } else {
      symbols.store(name.name);
    }
  });
}

void parameters(Symbols& symbols, const Expr* target) {
  each_name(target, [&](const Expr& name) { symbols.parameter(name.name); });
}

// What a statement says of the names of the scope that it stands in; inner scopes are not entered.
void visit(Symbols& symbols, const Body& body);

void visit(Symbols& symbols, const Stmt& stmt) {
  switch (stmt.kind) {
    case StmtKind::output:
    case StmtKind::with:
      for (const ExprPtr& expr : stmt.exprs) load(symbols, expr.get());
      break;
    case StmtKind::assign:
      load(symbols, stmt.value.get());
      store(symbols, stmt.target.get());
      break;
    case StmtKind::assign_block:
      store(symbols, stmt.target.get());
      break;
    case StmtKind::loop:
    case StmtKind::call_block:
    case StmtKind::filter_block:
      load(symbols, stmt.value.get());
      break;
    case StmtKind::macro:
      symbols.store(stmt.name);
      break;
    case StmtKind::branch: {
      // The conditions of elif belong to their branches, as the tests of nested ifs.
      load(symbols, stmt.branches[0].condition.get());
      std::vector<Symbols> branches(3, symbols);
      visit(branches[0], stmt.branches[0].body);
      for (size_t i = 1; i < stmt.branches.size(); ++i) {
        load(branches[1], stmt.branches[i].condition.get());
        std::vector<Symbols> inner(3, branches[1]);
        visit(inner[0], stmt.branches[i].body);
        branches[1].merge(inner);
      }
      visit(branches[2], stmt.else_body);
      symbols.merge(branches);
      break;
    }
    default:
      break;  // a scope of its own
  }
}

void visit(Symbols& symbols, const Body& body) {
  for (const StmtPtr& stmt : body) visit(symbols, *stmt);
}

// Every name below, assigned or read.
struct NameUse {
  std::function<void(int)> on_load;
  std::function<void(int, int)> on_store;  // name, line
};

void all_names(const Body& body, const NameUse& use);

void all_names(const Stmt& stmt, const NameUse& use) {
  if (stmt.kind == StmtKind::block) return;
  const auto reads = [&](const Expr* expr) {
    each_name(expr, [&](const Expr& name) { use.on_load(name.name); });
  };
  const auto writes = [&](const Expr* expr) {
    each_name(expr, [&](const Expr& name) {
      if (name.kind == ExprKind::name) use.on_store(name.name, stmt.line);
    });
  };
  writes(stmt.target.get());
  for (const ExprPtr& target : stmt.targets) writes(target.get());
  if (stmt.kind != StmtKind::filter_block) reads(stmt.value.get());
  for (const ExprPtr& expr : stmt.exprs) reads(expr.get());
  for (const Parameter& parameter : stmt.parameters) use.on_store(parameter.name, 0);
  for (const Parameter& parameter : stmt.parameters) reads(parameter.fallback.get());
  for (const Branch& branch : stmt.branches) {
    reads(branch.condition.get());
    all_names(branch.body, use);
  }
  all_names(stmt.body, use);
  all_names(stmt.else_body, use);
  reads(stmt.test.get());
  if (stmt.kind == StmtKind::filter_block) reads(stmt.value.get());
}

void all_names(const Body& body, const NameUse& use) {
  for (const StmtPtr& stmt : body) all_names(*stmt, use);
}

// Whether the body reads the name before it assigns it.
bool reads_first(const Body& body, int name) {
  bool is_read = false, is_own = false;
  all_names(body, {[&](int loaded) { is_read = is_read || (loaded == name && !is_own); },
                   [&](int stored, int) { is_own = is_own || stored == name; }});
  return is_read;
}

void plan(Body& body, const Symbols& symbols);

void plan_loop(Stmt& stmt, const Symbols& outer) {
  stmt.uses_loop = stmt.is_recursive || reads_first(stmt.body, kLoop);
  all_names(stmt, {[](int) {},
                   [](int name, int line) {
                     if (name == kLoop && line > 0) fail_at(line, "'loop' cannot be assigned");
                   }});
  Symbols inner(&outer);
  if (stmt.uses_loop) inner.parameter(kLoop);
  parameters(inner, stmt.target.get());
  visit(inner, stmt.body);
  stmt.scope = inner.plan();
  plan(stmt.body, inner);
  Symbols otherwise(&outer);
  visit(otherwise, stmt.else_body);
  stmt.else_scope = otherwise.plan();
  plan(stmt.else_body, otherwise);
  Symbols test(&outer);
  parameters(test, stmt.target.get());
  load(test, stmt.test.get());
  stmt.test_scope = test.plan();
}

void plan_macro(Stmt& stmt, const Symbols& outer) {
  stmt.uses_caller = reads_first(stmt.body, kCaller);
  stmt.uses_kwargs = reads_first(stmt.body, kKwargs);
  stmt.uses_varargs = reads_first(stmt.body, kVarargs);
  Symbols inner(&outer);
  for (const Parameter& parameter : stmt.parameters) {
    inner.parameter(parameter.name);
    stmt.uses_kwargs = stmt.uses_kwargs && parameter.name != kKwargs;
    stmt.uses_varargs = stmt.uses_varargs && parameter.name != kVarargs;
    if (parameter.name == kCaller && stmt.uses_caller && !parameter.fallback) {
      fail_at(stmt.line, "a macro's parameter 'caller' needs a default");
    }
  }
  for (const Parameter& parameter : stmt.parameters) load(inner, parameter.fallback.get());
  visit(inner, stmt.body);
  if (stmt.uses_caller) inner.parameter(kCaller);
  if (stmt.uses_kwargs) inner.parameter(kKwargs);
  if (stmt.uses_varargs) inner.parameter(kVarargs);
  stmt.scope = inner.plan();
  plan(stmt.body, inner);
}

void plan_plain(Stmt& stmt, const Symbols* outer) {
  Symbols inner(outer);
  for (const ExprPtr& target : stmt.targets) parameters(inner, target.get());
  visit(inner, stmt.body);
  if (stmt.kind == StmtKind::filter_block || stmt.kind == StmtKind::assign_block) {
    load(inner, stmt.value.get());
  }
  stmt.scope = inner.plan();
  plan(stmt.body, inner);
}

void plan(Stmt& stmt, const Symbols& symbols) {
  switch (stmt.kind) {
    case StmtKind::loop:
      return plan_loop(stmt, symbols);
    case StmtKind::macro:
    case StmtKind::call_block:
    case StmtKind::generation:
      return plan_macro(stmt, symbols);
    case StmtKind::assign_block:
    case StmtKind::filter_block:
    case StmtKind::with:
      return plan_plain(stmt, &symbols);
    case StmtKind::block:
      return plan_plain(stmt, nullptr);
    case StmtKind::branch:
      for (Branch& branch : stmt.branches) plan(branch.body, symbols);
      plan(stmt.else_body, symbols);
      return;
    default:
      return;
  }
}

void plan(Body& body, const Symbols& symbols) {
  for (const StmtPtr& stmt : body) plan(*stmt, symbols);
}

}  // namespace

void plan_scopes(Tree& tree) {
  Symbols root(nullptr);
  visit(root, tree.body);
  tree.scope = root.plan();
  plan(tree.body, root);
}

}  // namespace octet::jinja
