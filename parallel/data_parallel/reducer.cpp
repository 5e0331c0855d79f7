#include "parallel/data_parallel/reducer.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <unordered_set>
#include <utility>

#include "core/autograd/backward.h"
#include "core/error.h"
#include "parallel/data_parallel/compression.h"
#include "parallel/data_parallel/flat.h"
#include "parallel/data_parallel/same_model.h"

namespace stagecoach {
namespace {

/// Those of `parameters` that at least one rank trains.
NamedTensors trained_somewhere(const NamedTensors& parameters, Communicator& comm) {
  std::vector<float> trains;
  for (const auto& [name, parameter] : parameters) {
    trains.push_back(parameter.requires_grad() ? 1 : 0);
  }
  Tensor ranks = Tensor::from(trains, {static_cast<std::int64_t>(trains.size())}, comm.device());
  comm.all_reduce(ranks);
  trains = ranks.to_vector<float>();
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
    : comm_(comm), settings_(std::move(settings)), parameters_(without_repeats(parameters)), comm_thread_(comm) {
  require_same_tensors(parameters_, comm);
  parameters_ = trained_somewhere(parameters_, comm);
  states_.resize(parameters_.size());
  times_.arrivals.resize(parameters_.size());
  if (!settings_.reduce) {
    settings_.reduce = plain_sum();
  }
  build(bucket_layout(parameters_, reverse_order(parameters_.size()), settings_.caps));
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i].second.on_gradient([this, i](Tensor&) { take_gradient(i); });
  }
}

Reducer::~Reducer() {
  for (auto& [name, parameter] : parameters_) {
    parameter.on_gradient({});
  }
}

/// New buckets; gradients that are there already move into them.
void Reducer::build(const BucketLayout& layout) {
  buckets_.clear();
  missing_.resize(layout.size());
  for (const std::vector<std::size_t>& members : layout) {
    Bucket bucket{static_cast<int>(buckets_.size())};
    std::vector<Tensor> parameters;
    for (const std::size_t i : members) {
      states_[i].bucket = buckets_.size();
      states_[i].place = bucket.names.size();
      bucket.names.push_back(parameters_[i].first);
      parameters.push_back(parameters_[i].second);
    }
    bucket.flat = flat_for(parameters);
    bucket.gradients = views_of(bucket.flat, parameters);
    buckets_.push_back(std::move(bucket));
    for (const std::size_t i : members) {
      if (parameters_[i].second.grad().defined()) {
        bind(i);
      }
    }
  }
}

/// Gradients come in another order than that of the parameters where layers run in another one. All ranks take the
/// order that rank 0 saw: buckets must be the same everywhere.
void Reducer::rebuild() {
  std::unordered_set<std::size_t> came(first_order_.begin(), first_order_.end());
  const std::vector<std::size_t> guessed = reverse_order(parameters_.size());
  std::copy_if(guessed.begin(), guessed.end(), std::back_inserter(first_order_),
               [&](std::size_t i) { return !came.contains(i); });
  const std::vector<std::int32_t> mine(first_order_.begin(), first_order_.end());
  Tensor order = Tensor::from(mine, {static_cast<std::int64_t>(mine.size())}, comm_.device());
  comm_.broadcast(order, 0);
  const auto chosen = order.to_vector<std::int32_t>();
  build(bucket_layout(parameters_, {chosen.begin(), chosen.end()}, settings_.caps));
  rebuilt_ = true;
}

/// What every round begins with.
void Reducer::start(Sync sync) {
  STAGECOACH_CHECK(running_ != Sync::yes && pending_.empty(), "reducer: begin() while a step runs; finish() ends it");
  const NoGrad no_grad;
  if (std::exchange(reduced_, false)) {
    for (const auto& [name, parameter] : parameters_) {
      STAGECOACH_CHECK(!parameter.grad().defined(),
                       "reducer: '{}' still has the last step's gradient, which would be summed over the ranks once "
                       "more; call zero_grad() after the optimizer's step",
                       name);
    }
  }
  if (std::exchange(begun_, true) && !rebuilt_) {
    rebuild();
  }
  running_ = sync;
  times_.begin = comm_.clock().now();
  work_begin_ = times_.begin - comm_.clock().waited();
  times_.reductions.clear();
  pending_.clear();
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    missing_[b] = buckets_[b].names.size();
  }
  for (State& state : states_) {
    state.ready = false;
  }
}

void Reducer::begin(Sync sync, std::span<const Tensor> outputs) {
  start(sync);
  mark_unused(outputs);
}

void Reducer::reduce_accumulated() {
  start(Sync::yes);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    mark_ready(i);
  }
}

void Reducer::reduce_accumulated(const NamedTensors& parameters) {
  STAGECOACH_CHECK(running_ == Sync::no, "reducer: gradients to reduce before begin(Sync::no)");
  std::unordered_set<const void*> chosen;
  for (const auto& [name, parameter] : parameters) {
    chosen.insert(parameter.id());
  }
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (chosen.contains(parameters_[i].second.id())) {
      mark_ready(i);
    }
  }
}

/// The backward will not reach these: they are ready now, with what earlier backwards left, or with zeros.
void Reducer::mark_unused(std::span<const Tensor> outputs) {
  if (running_ != Sync::yes) {
    return;
  }
  std::unordered_set<const void*> reached;
  if (settings_.find_unused) {
    for (const Tensor& leaf : reachable_leaves(outputs)) {
      reached.insert(leaf.id());
    }
  }
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& parameter = parameters_[i].second;
    if (!parameter.requires_grad() || (settings_.find_unused && !reached.contains(parameter.id()))) {
      mark_ready(i);
    }
  }
}

/// The hook of a parameter.
void Reducer::take_gradient(std::size_t i) {
  STAGECOACH_CHECK(running_.has_value(), "reducer: a backward that was not announced; call begin() before it");
  State& state = states_[i];
  STAGECOACH_CHECK(!state.ready || running_ == Sync::yes,
                   "reducer: a gradient for '{}' after reduce_accumulated() took what there was", parameters_[i].first);
  if (!rebuilt_ && !state.used) {
    first_order_.push_back(i);
  }
  state.used = true;
  bind(i);
  if (running_ == Sync::yes) {
    mark_ready(i);
  }
}

/// The gradient becomes a view of its bucket: what is summed there needs no copy back.
void Reducer::bind(std::size_t i) {
  Tensor parameter = parameters_[i].second;
  Tensor& home = buckets_[states_[i].bucket].gradients[states_[i].place];
  if (!parameter.grad().is_same(home)) {
    home.copy_from(parameter.grad());
    parameter.set_grad(home);
  }
}

void Reducer::mark_ready(std::size_t i) {
  State& state = states_[i];
  STAGECOACH_CHECK(
      !state.ready,
      "reducer: a second gradient for '{}' in one step; all backwards of a step but the last take Sync::no",
      parameters_[i].first);
  state.ready = true;
  times_.arrivals[i] = comm_.clock().now() - comm_.clock().waited() - work_begin_;
  if (!parameters_[i].second.grad().defined()) {
    buckets_[state.bucket].gradients[state.place].fill(0);
  }
  if (--missing_[state.bucket] == 0) {
    launch_full_buckets();
  }
}

/// In their order, even when a later one is full first: else ranks would sum different buckets.
void Reducer::launch_full_buckets() {
  while (pending_.size() < buckets_.size() && missing_[pending_.size()] == 0) {
    Bucket& bucket = buckets_[pending_.size()];
    pending_.push_back(
        comm_thread_.run("reduce bucket", [this, &bucket](Communicator& comm) { settings_.reduce(bucket, comm); }));
  }
}

void Reducer::require_all_ready() const {
  std::vector<std::string> absent;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!states_[i].ready) {
      absent.push_back(fmt::format("'{}'", parameters_[i].first));
    }
  }
  STAGECOACH_CHECK(absent.empty(),
                   "reducer: no gradient came for {}: this step's loss does not depend on it. Where that may be, let "
                   "unused parameters be found (--find-unused); or freeze them",
                   fmt::join(absent, ", "));
}

/// [parameters], how many ranks used each since the last reduction.
Tensor Reducer::sum_of_uses() {
  std::vector<float> uses;
  std::transform(states_.begin(), states_.end(), std::back_inserter(uses),
                 [](const State& state) { return state.used ? 1.0F : 0.0F; });
  Tensor sum = Tensor::from(uses, {static_cast<std::int64_t>(uses.size())}, comm_.device());
  comm_thread_.run("reduce uses", [sum](Communicator& comm) mutable { comm.all_reduce(sum); }).wait();
  return sum;
}

void Reducer::finish() {
  // A stage without parameters has nothing to reduce.
  const bool reduces = parameters_.empty() ||
                       std::any_of(states_.begin(), states_.end(), [](const State& state) { return state.ready; });
  STAGECOACH_CHECK(running_ == Sync::yes || (running_ == Sync::no && reduces),
                   "reducer: finish() without begin(Sync::yes)");
  const NoGrad no_grad;
  times_.end = comm_.clock().now();
  require_all_ready();
  for (const CommThread::Pending& reduction : pending_) {
    times_.reductions.push_back(reduction.wait());
  }
  pending_.clear();
  std::vector<float> uses(parameters_.size(), 1);
  if (settings_.find_unused) {
    uses = sum_of_uses().to_vector<float>();
  }
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    State& state = states_[i];
    parameters_[i].second.set_grad(uses[i] > 0 ? buckets_[state.bucket].gradients[state.place] : Tensor());
    state.used = false;
  }
  running_.reset();
  reduced_ = true;
}

}  // namespace stagecoach
