#include "parallel/pipeline/tied_ranks.h"

#include <memory>
#include <string>
#include <vector>

#include "core/autograd/grad_mode.h"
#include "core/base/error.h"

namespace stagecoach {
namespace {

/// This rank's parameter of a pair.
struct TiedRank {
  std::unique_ptr<Communicator> pair;  // rank 0 has the first parameter, rank 1 the copy
  std::string name;
  Tensor parameter;

  bool is_copy() const { return pair->rank() == 1; }
  void sum_gradients() {
    Tensor gradient = parameter.grad();
    STAGECOACH_CHECK(gradient.defined(), "tied weights: '{}' has no gradient; run a backward before each step", name);
    pair->reduce(gradient, 0);
    parameter.set_grad(is_copy() ? Tensor{} : gradient);
  }
  void copy_values() {
    const NoGrad no_grad;
    pair->broadcast(parameter, 0);
  }
};

}  // namespace

void tie_ranks(Optimizer& optimizer, const NamedTensors& mine, const TiedWeights::Names& names, Communicator& comm) {
  const auto tied = std::make_shared<std::vector<TiedRank>>();
  for (const auto& [first_name, copy_name] : names) {
    const Tensor first = find_tensor(mine, first_name);
    const Tensor copy = find_tensor(mine, copy_name);
    const bool has_both = first.defined() && copy.defined();
    const std::vector<double> holders =
        comm.sum_numbers({first.defined() ? 1.0 : 0, copy.defined() ? 1.0 : 0, has_both ? 1.0 : 0});
    STAGECOACH_CHECK(
        holders[0] == 1 && holders[1] == 1,
        "tied weights: expected '{}' and '{}' on one rank each, got {} and {} ranks; give a stage one rank", first_name,
        copy_name, holders[0], holders[1]);
    if (holders[2] > 0) {
      continue;
    }
    const bool is_member = first.defined() || copy.defined();
    auto pair = comm.split(is_member ? 1 : 0, first.defined() ? 0 : 1);
    if (is_member) {
      tied->push_back({std::move(pair), first.defined() ? first_name : copy_name, first.defined() ? first : copy});
      tied->back().copy_values();
    }
  }
  if (!tied->empty()) {
    const auto each = [tied](void (TiedRank::*run)()) {
      return [tied, run] {
        for (TiedRank& rank : *tied) {
          (rank.*run)();
        }
      };
    };
    optimizer.tie(each(&TiedRank::sum_gradients), each(&TiedRank::copy_values));
  }
}

}  // namespace stagecoach
