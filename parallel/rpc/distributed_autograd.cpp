#include "parallel/rpc/distributed_autograd.h"

#include <algorithm>

#include "core/autograd/backward.h"
#include "core/base/error.h"

namespace stagecoach {

using rpc::Task;

namespace {

/// Hands gradients on to tensors, so that one backward runs through all that they were computed from.
class ArrivedGradients final : public Node {
 public:
  ArrivedGradients(std::vector<Tensor> tensors, Gradients gradients)
      : Node("arrived gradients", std::move(tensors)), gradients_(std::move(gradients)) {}
  Gradients backward(const Tensor&, const NeedsInputGrad&) override { return std::move(gradients_); }

 private:
  Gradients gradients_;
};

}  // namespace

DistributedContext::DistributedContext(Master& master) : master_(master), id_(master.connection_->new_ids()) {
  master.contexts_.push_back(this);
}

DistributedContext::~DistributedContext() {
  std::erase(master_.contexts_, this);
  for (const int rank : ranks_) {
    master_.connection_->tell_later(rank, {.task = Task::end_context, .context = id_});
  }
}

void DistributedContext::record_next() {
  std::erase(master_.contexts_, this);
  master_.contexts_.push_back(this);
}

std::uint64_t DistributedContext::record(const RRef& output, const std::vector<rpc::Argument>& arguments) {
  constexpr std::size_t kMaxArguments = 64;  // bits of the result
  std::uint64_t needs_grad = 0;
  std::vector<Input> inputs;
  std::set<int> producers;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    Input input;
    if (const auto* reference = std::get_if<RRef>(&arguments[i])) {
      const auto found = call_of_.find(reference->id());
      input.producer = found != call_of_.end() && producers.insert(found->second).second ? found->second : -1;
    } else if (const Tensor* tensor = std::get_if<Tensor>(&std::get<rpc::Value>(arguments[i]))) {
      input.of_master = tensor->requires_grad() ? *tensor : Tensor();
    }
    if (input.producer >= 0 || input.of_master.defined()) {
      STAGECOACH_CHECK(i < kMaxArguments,
                       "recorded call: expected gradients of the first {} arguments only, got one of {}", kMaxArguments,
                       i + 1);
      needs_grad |= std::uint64_t{1} << i;
      inputs.push_back(input);
    }
  }
  call_of_[output.id()] = static_cast<int>(calls_.size());
  calls_.push_back({.output = output, .inputs = std::move(inputs)});
  ranks_.insert(output.rank());
  return needs_grad;
}

void DistributedContext::note_fetched(rpc::Id id, Tensor& tensor) {
  const auto found = call_of_.find(id);
  const bool is_floating = tensor.dtype() == DType::float32 || tensor.dtype() == DType::float64;
  if (found != call_of_.end() && is_floating) {
    Tensor& fetched = call(found->second).fetched;
    fetched = fetched.defined() ? fetched : tensor.set_requires_grad(true);
    call_of_leaf_[fetched.id()] = found->second;
    tensor = fetched;  // one leaf, however often it is fetched
  }
}

std::set<int> DistributedContext::calls_before(const Input& input) const {
  if (input.producer >= 0) {
    return {input.producer};
  }
  std::set<int> before;
  const std::vector<Tensor> tensor{input.of_master};
  for (const Tensor& leaf : input.of_master.is_leaf() ? tensor : reachable_leaves(tensor)) {
    if (const auto found = call_of_leaf_.find(leaf.id()); found != call_of_leaf_.end()) {
      before.insert(found->second);
    }
  }
  return before;
}

std::map<int, std::vector<int>> DistributedContext::connected_calls() const {
  std::vector<int> earlier;  // a connected call before this one, or this one itself
  const auto first_of = [&](int index) {
    while (earlier[static_cast<std::size_t>(index)] != index) {
      index = earlier[static_cast<std::size_t>(index)];
    }
    return index;
  };
  for (const RecordedCall& call : calls_) {
    const int index = static_cast<int>(earlier.size());
    earlier.push_back(index);
    for (const Input& input : call.inputs) {
      for (const int other : calls_before(input)) {
        const auto [low, high] = std::minmax({first_of(index), first_of(other)});
        earlier[static_cast<std::size_t>(high)] = low;
      }
    }
  }
  std::map<int, std::vector<int>> connected;
  for (int index = static_cast<int>(calls_.size()) - 1; index >= 0; --index) {
    connected[first_of(index)].push_back(index);
  }
  return connected;
}

rpc::Value DistributedContext::on_rank(int rank, const RRef& value) {
  used_.push_back(master_.at(rank, value));
  return rpc::Reference{used_.back().id()};
}

rpc::Value DistributedContext::continue_sum(const RecordedCall& user, const Input& input, int first_call,
                                            const RRef& next) {
  if (input.producer < 0) {
    const auto found = std::find_if(pending_.begin(), pending_.end(), [&](const Pending& pending) {
      return pending.first_call == first_call && pending.tensor.is_same(input.of_master) &&
             pending.last_user != user.output.id();
    });
    if (found == pending_.end()) {
      pending_.push_back({input.of_master, next, user.output.id(), first_call, calls_before(input)});
      return {};
    }
    found->last_user = user.output.id();
    return on_rank(next.rank(), std::exchange(found->grad, next));
  }
  RecordedCall& producer = call(input.producer);
  if (const auto sum = std::exchange(producer.grad, next)) {
    return on_rank(next.rank(), *sum);
  }
  return fetched_grad(producer);
}

rpc::Value DistributedContext::fetched_grad(const RecordedCall& call) {
  const Tensor gradient = call.fetched.defined() ? take_gradient(call.fetched) : Tensor();
  return gradient.defined() ? rpc::Value(gradient) : rpc::Value();
}

void DistributedContext::run_backward(int index, int first_call) {
  const auto is_independent = [&](const Pending& pending) { return !pending.before.contains(index); };
  const auto dependent = std::stable_partition(pending_.begin(), pending_.end(), is_independent);
  settle({dependent, pending_.end()});
  pending_.erase(dependent, pending_.end());
  RecordedCall& call = this->call(index);
  const rpc::Value of_master = fetched_grad(call);
  if (std::holds_alternative<std::monostate>(of_master) && !call.grad) {
    return;  // the loss does not depend on it
  }
  const int rank = call.output.rank();
  rpc::Connection& connection = *master_.connection_;
  rpc::Id next = connection.new_ids(static_cast<rpc::Id>(call.inputs.size()));
  rpc::Command run{.task = Task::backward, .result = next, .of = call.output.id(), .context = id_};
  run.arguments = {call.grad ? on_rank(rank, *call.grad) : rpc::Value(), of_master};
  for (const Input& input : call.inputs) {
    run.arguments.push_back(continue_sum(call, input, first_call, RRef(master_, rank, next++)));
  }
  call.grad.reset();
  const rpc::Command check{.task = Task::check, .context = id_};
  answers_.emplace_back(rank, connection.ask(rank, {std::move(run), check}));
  used_.clear();
}

void DistributedContext::settle(const std::vector<Pending>& arriving) {
  std::vector<Future> futures;
  for (const Pending& pending : arriving) {
    futures.push_back(pending.grad.fetch());
  }
  for (std::size_t i = 0; i < arriving.size();) {
    std::vector<Tensor> tensors;
    Gradients gradients;
    for (const int first = arriving[i].first_call; i < arriving.size() && arriving[i].first_call == first; ++i) {
      if (const Tensor gradient = futures[i].wait(); gradient.defined()) {
        tensors.push_back(arriving[i].tensor);
        gradients.push_back(gradient.to(tensors.back().device()));
      }
    }
    if (!tensors.empty()) {
      Tensor root = Tensor::zeros({});
      root.set_grad_node(std::make_shared<ArrivedGradients>(tensors, gradients));
      stagecoach::backward(root, {}, RetainGraph::yes);  // other tensors may have been computed from the same ones
    }
  }
}

void DistributedContext::check() const {
  rpc::Connection& connection = *master_.connection_;
  std::vector<std::pair<int, rpc::Answer>> answers;
  for (const int rank : ranks_) {
    answers.emplace_back(rank, connection.ask(rank, {.task = Task::check, .context = id_}));
  }
  for (const auto& [rank, answer] : answers) {
    connection.wait(rank, answer);
  }
}

void DistributedContext::backward(const Tensor& loss, const Tensor& grad) {
  STAGECOACH_CHECK(!has_gradients_, "backward of a distributed context: it has been called already; begin a new one");
  const bool has_tensors_of_master = std::any_of(calls_.begin(), calls_.end(), [](const RecordedCall& call) {
    return std::any_of(call.inputs.begin(), call.inputs.end(), [](const Input& input) { return input.producer < 0; });
  });
  stagecoach::backward(loss, grad, has_tensors_of_master ? RetainGraph::yes : RetainGraph::no);
  for (const auto& [first_call, indices] : connected_calls()) {
    for (const int index : indices) {
      run_backward(index, first_call);
    }
  }
  for (const auto& [rank, answer] : std::exchange(answers_, {})) {
    master_.connection_->wait(rank, answer);
  }
  settle(std::exchange(pending_, {}));
  check();
  has_gradients_ = true;
}

void DistributedOptimizer::make(const std::string& factory, const NamedRRefs& parameters,
                                const std::vector<rpc::Argument>& arguments) {
  rpc::Connection& connection = *master_.connection_;
  std::map<int, std::vector<rpc::Value>> on_rank;  // names and references in turn
  for (const auto& [name, parameter] : parameters) {
    on_rank[parameter.rank()].emplace_back(
        fmt::format("{}.{}", parameter.id(), name));  // two modules may have a weight
    on_rank[parameter.rank()].emplace_back(rpc::Reference{parameter.id()});
  }
  for (const auto& [rank, tensors] : on_rank) {
    const RRef list(master_, rank, connection.new_ids());
    connection.tell(rank, {.task = Task::pack, .result = list.id(), .arguments = tensors});
    std::vector<rpc::Argument> all{list};
    all.insert(all.end(), arguments.begin(), arguments.end());
    optimizers_.push_back(master_.remote(rpc::Callee{rank, factory}, all));
  }
  for (const RRef& optimizer : optimizers_) {
    optimizer.confirm();
  }
}

void DistributedOptimizer::step(const DistributedContext& context) {
  context.check();  // a worker knows only its own errors
  STAGECOACH_CHECK(context.has_gradients_,
                   "step of a distributed optimizer: the context has no gradients; call its backward() first");
  rpc::Connection& connection = *master_.connection_;
  std::vector<std::pair<int, rpc::Answer>> answers;
  for (const RRef& optimizer : optimizers_) {
    answers.emplace_back(
        optimizer.rank(),
        connection.ask(optimizer.rank(), {.task = Task::step, .of = optimizer.id(), .context = context.id_}));
  }
  for (const auto& [rank, answer] : answers) {
    connection.wait(rank, answer);
  }
}

}  // namespace stagecoach
