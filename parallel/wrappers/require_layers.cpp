#include "parallel/wrappers/require_layers.h"

#include <map>
#include <set>
#include <string>

#include "core/base/throw_if.h"
#include "nn/layers.h"

namespace stagecoach {
namespace {

/// Throws UsageError for two layers that would draw the same random numbers.
void require_own_dropout(const char* wrapper, const Module& module, std::set<std::string>& names) {
  if (const auto* dropout = dynamic_cast<const Dropout*>(&module); dropout != nullptr && dropout->probability() > 0) {
    throw_if<UsageError>(!names.insert(dropout->name()).second,
                         "{}: expected a name of its own for each Dropout, got two of '{}', which would drop the same "
                         "elements; name them after their places in the model",
                         wrapper, dropout->name());
  }
  for (const auto& [name, child] : module.children()) {
    require_own_dropout(wrapper, *child, names);
  }
}

}  // namespace

std::shared_ptr<Sequential> require_layers(const char* wrapper, std::shared_ptr<Sequential> model) {
  throw_if<UsageError>(model == nullptr || model->size() == 0,
                       "{}: expected a model with layers, got one without; add() them before", wrapper);
  std::map<const Module*, std::string> seen;
  for (const auto& [name, layer] : model->children()) {
    const auto [first, is_new] = seen.emplace(layer.get(), name);
    throw_if<UsageError>(!is_new,
                         "{}: expected each layer once, got the same one as '{}' and as '{}', which may be on two "
                         "ranks; make two layers",
                         wrapper, first->second, name);
  }
  std::set<std::string> dropouts;
  require_own_dropout(wrapper, *model, dropouts);
  return model;
}

}  // namespace stagecoach
