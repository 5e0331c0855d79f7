#include "parallel/data_parallel/reducer.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <unordered_set>
#include <utility>

#include "core/autograd/backward.h"
#include "core/base/error.h"
#include "parallel/data_parallel/compression.h"
#include "parallel/data_parallel/same_model.h"

namespace stagecoach {
namespace {

/// Returns the parameters that at least one rank trains, each once. Throws Error unless all ranks have the same
/// parameters.
NamedTensors trained_parameters(const NamedTensors& with_repeats, Communicator& comm) {
  const NamedTensors parameters = without_repeats(with_repeats);
  require_same_tensors(parameters, comm);
  std::vector<double> trains;
  for (const auto& [name, parameter] : parameters) {
    trains.push_back(parameter.requires_grad() ? 1 : 0);
  }
  trains = comm.sum_numbers(trains);
  NamedTensors trained;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (trains[i] > 0) {
      trained.push_back(parameters[i]);
    }
  }
  return trained;
}

}  // namespace

Reducer::Reducer(const NamedTensors& parameters, Communicator& comm, ReducerSettings settings)
    : comm_(comm),
      find_unused_(settings.find_unused),
      parameters_(trained_parameters(parameters, comm)),
      buckets_(parameters_, comm, settings.caps, settings.reduce ? std::move(settings.reduce) : plain_sum()),
      used_(parameters_.size()),
      parts_(parameters_.size()) {
  times_.arrivals.resize(parameters_.size());
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i].second.set_gradient_hook([this, i](Tensor&) { see_gradient(i); });
  }
}

Reducer::~Reducer() {
  for (auto& [name, parameter] : parameters_) {
    parameter.set_gradient_hook({});
  }
}

/// Lays out the buckets in the order in which rank 0 got its gradients: layers may run in a different order than that
/// of the parameters, and the buckets must be the same on all ranks. Gradients that are reduced at different times have
/// buckets of their own, in the order of these times.
void Reducer::rebuild() {
  std::unordered_set<std::size_t> arrived(first_order_.begin(), first_order_.end());
  const std::vector<std::size_t> guessed = reverse_order(parameters_.size());
  std::copy_if(guessed.begin(), guessed.end(), std::back_inserter(first_order_),
               [&](std::size_t i) { return !arrived.contains(i); });
  std::multimap<int, std::size_t> by_part;  // those of a part keep their order
  for (const std::size_t i : first_order_) {
    by_part.emplace(parts_[i], i);
  }
  std::vector<std::int32_t> mine;
  for (const auto& [part, i] : by_part) {
    mine.push_back(static_cast<std::int32_t>(i));
  }
  Tensor order = Tensor::from(mine, {static_cast<std::int64_t>(mine.size())}, comm_.device());
  comm_.broadcast(order, 0);
  const auto chosen = order.to_vector<std::int32_t>();
  buckets_.lay_out({chosen.begin(), chosen.end()}, parts_);
  rebuilt_ = true;
}

void Reducer::begin(Sync sync, std::span<const Tensor> outputs) {
  STAGECOACH_CHECK(running_ != Sync::yes && !buckets_.is_reducing(),
                   "reducer: begin() was called during a step; call finish() first");
  const NoGrad no_grad;
  if (reduced_) {
    for (const auto& [name, parameter] : parameters_) {
      STAGECOACH_CHECK(!parameter.grad().defined(),
                       "reducer: '{}' still has the last step's gradient, which would be summed over the ranks again; "
                       "call zero_grad() after the optimizer's step",
                       name);
    }
    reduced_ = false;
    if (!rebuilt_) {  // between steps: within one, ranks may have different numbers of micro-batches
      rebuild();
    }
  }
  running_ = sync;
  work_begin_ = comm_.clock().now() - comm_.clock().waited();
  buckets_.start();
  mark_unused(outputs);
}

void Reducer::reduce_accumulated(const NamedTensors& parameters) {
  STAGECOACH_CHECK(running_ == Sync::no, "reducer: reduce_accumulated(parameters) was called before begin(Sync::no)");
  std::unordered_set<const void*> chosen;
  for (const auto& [name, parameter] : parameters) {
    chosen.insert(parameter.id());
  }
  const int part = parts_.empty() ? 1 : 1 + *std::max_element(parts_.begin(), parts_.end());
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (chosen.contains(parameters_[i].second.id())) {
      parts_[i] = rebuilt_ ? parts_[i] : part;
      mark_ready(i);
    }
  }
}

/// Marks the parameters that the backward will not reach as ready, with the gradients of earlier backwards or with
/// zeros.
void Reducer::mark_unused(std::span<const Tensor> outputs) {
  if (running_ != Sync::yes) {
    return;
  }
  std::unordered_set<const void*> reached;
  if (find_unused_) {
    for (const Tensor& leaf : reachable_leaves(outputs)) {
      reached.insert(leaf.id());
    }
  }
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& parameter = parameters_[i].second;
    if (!parameter.requires_grad() || (find_unused_ && !reached.contains(parameter.id()))) {
      mark_ready(i);
    }
  }
}

/// Handles a parameter's gradient; called from its gradient hook.
void Reducer::see_gradient(std::size_t i) {
  STAGECOACH_CHECK(running_.has_value(), "reducer: a backward ran before begin(); call begin() first");
  STAGECOACH_CHECK(!buckets_.is_ready(i) || running_ == Sync::yes,
                   "reducer: got a gradient of '{}' after reduce_accumulated(); run all backwards first",
                   parameters_[i].first);
  if (!rebuilt_ && used_[i] == 0) {
    first_order_.push_back(i);
  }
  used_[i] = 1;
  buckets_.take_gradient(i);
  if (running_ == Sync::yes) {
    mark_ready(i);
  }
}

void Reducer::mark_ready(std::size_t i) {
  Clock& clock = comm_.clock();
  times_.arrivals[i] = clock.between(work_begin_, clock.now() - clock.waited());
  buckets_.mark_ready(i);
}

void Reducer::require_all_ready() const {
  std::vector<std::string> absent;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!buckets_.is_ready(i)) {
      absent.push_back(fmt::format("'{}'", parameters_[i].first));
    }
  }
  STAGECOACH_CHECK(absent.empty(),
                   "reducer: expected a gradient for every parameter, got none for {}, on which this step's loss does "
                   "not depend; find unused parameters (`find_unused`), or freeze them",
                   fmt::join(absent, ", "));
}

void Reducer::finish() {
  bool has_ready = parameters_.empty();  // a stage without parameters has nothing to reduce
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    has_ready |= buckets_.is_ready(i);
  }
  STAGECOACH_CHECK(running_ == Sync::yes || (running_ == Sync::no && has_ready),
                   "reducer: finish() was called without begin(Sync::yes)");
  const NoGrad no_grad;
  require_all_ready();
  times_.reductions = buckets_.wait();
  std::vector<double> uses(parameters_.size(), 1);  // the number of ranks that used each parameter
  if (find_unused_) {
    buckets_.comm_thread().submit("reduce uses", [&](Communicator& comm) { uses = comm.sum_numbers(used_); }).wait();
  }
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i].second.set_grad(uses[i] > 0 ? buckets_.gradient(i) : Tensor());
    used_[i] = 0;
  }
  running_.reset();
  reduced_ = true;
}

}  // namespace stagecoach
