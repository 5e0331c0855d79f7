#include "parallel/rpc/distributed_autograd.h"

#include <algorithm>
#include <map>

#include "core/autograd/backward.h"
#include "core/base/error.h"
#include "core/base/phrases.h"

namespace stagecoach {

using rpc::Answer;
using rpc::Task;

DistributedContext::DistributedContext(Master& master) : master_(master), id_(master.connection_->new_ids()) {
  STAGECOACH_CHECK(master.context_ == nullptr,
                   "distributed autograd: there is a context already; end it before the next one begins");
  master.context_ = this;
}

DistributedContext::~DistributedContext() {
  master_.context_ = nullptr;
  for (const int rank : ranks_) {
    master_.connection_->tell_later(rank, {.task = Task::end_context, .context = id_});
  }
}

int DistributedContext::call_of(rpc::Id output) const {
  const auto found =
      std::find_if(calls_.begin(), calls_.end(), [&](const Call& call) { return call.output.id() == output; });
  return found == calls_.end() ? -1 : static_cast<int>(found - calls_.begin());
}

bool DistributedContext::record(const RRef& output, const RRef& input, const RRef& x) {
  const int producer = call_of(x.id());
  if (producer >= 0) {
    ++calls_[static_cast<std::size_t>(producer)].consumers;
  }
  calls_.push_back({.output = output, .input = input, .producer = producer, .fetched = {}});
  ranks_.insert(output.rank());
  return producer >= 0;
}

void DistributedContext::note_fetched(rpc::Id id, Tensor& tensor) {
  if (const int call = call_of(id); call >= 0) {
    Tensor& fetched = calls_[static_cast<std::size_t>(call)].fetched;
    fetched = fetched.defined() ? fetched : tensor.set_requires_grad(true);
    tensor = fetched;  // one leaf, however often it is fetched
  }
}

const DistributedContext::Call* DistributedContext::producer_of(const Call& call) const {
  return call.producer < 0 ? nullptr : &calls_[static_cast<std::size_t>(call.producer)];
}

void DistributedContext::require_used_once(const Call& last) const {
  STAGECOACH_CHECK(last.consumers == 0,
                   "distributed autograd: an output that the loss depends on was also used by {}; use "
                   "each output once",
                   counted(last.consumers, "other module"));
  for (const Call* call = &last; call != nullptr; call = producer_of(*call)) {
    STAGECOACH_CHECK(call->consumers <= 1,
                     "distributed autograd: the output of a module was used by {} other modules; use each output once",
                     call->consumers);
  }
}

void DistributedContext::check() const {
  rpc::Connection& connection = *master_.connection_;
  std::vector<std::pair<int, Answer>> answers;
  for (const int rank : ranks_) {
    answers.emplace_back(rank, connection.ask(rank, {.task = Task::check, .context = id_}));
  }
  for (const auto& [rank, answer] : answers) {
    connection.wait(rank, answer);
  }
}

void DistributedContext::backward(const Tensor& loss, const Tensor& grad) {
  stagecoach::backward(loss, grad);
  for (const Call& last : calls_) {  // before the first worker begins
    if (has_gradient(last)) {
      require_used_once(last);
    }
  }
  rpc::Connection& connection = *master_.connection_;
  std::vector<std::pair<int, Answer>> answers;
  std::vector<RRef> gradients;  // kept until the workers have used them
  for (const Call& last : calls_) {
    if (!has_gradient(last)) {
      continue;
    }
    RRef gradient = master_.put(last.output.rank(), last.fetched.grad());
    for (const Call* call = &last; call != nullptr; call = producer_of(*call)) {
      const int rank = call->output.rank();
      gradients.push_back(master_.at(rank, gradient));
      gradient = RRef(master_, rank, connection.new_ids());
      const rpc::Command run{.task = Task::backward,
                             .result = gradient.id(),
                             .of = call->output.id(),
                             .context = id_,
                             .arguments = {gradients.back().id()}};
      const rpc::Command check{.task = Task::check, .context = id_};
      answers.emplace_back(rank, connection.ask(rank, std::vector{run, check}));
    }
  }
  for (const auto& [rank, answer] : answers) {
    connection.wait(rank, answer);
  }
  check();
  has_gradients_ = true;
}

DistributedOptimizer::DistributedOptimizer(Master& master, const std::string& factory, const NamedRRefs& parameters)
    : master_(master) {
  std::map<int, std::vector<rpc::Id>> on_rank;
  for (const auto& [name, parameter] : parameters) {
    on_rank[parameter.rank()].push_back(parameter.id());
  }
  for (const auto& [rank, ids] : on_rank) {
    rpc::Connection& connection = *master_.connection_;
    optimizers_.emplace_back(rank, connection.new_ids());
    connection.wait(rank, connection.ask(rank, {.task = Task::make_optimizer,
                                                .result = optimizers_.back().second,
                                                .name = factory,
                                                .arguments = ids}));
  }
}

void DistributedOptimizer::step(const DistributedContext& context) {
  context.check();  // a worker knows only its own errors
  STAGECOACH_CHECK(context.has_gradients_,
                   "step of a distributed optimizer: the context has no gradients; call its backward() first");
  rpc::Connection& connection = *master_.connection_;
  std::vector<std::pair<int, Answer>> answers;
  for (const auto& [rank, id] : optimizers_) {
    answers.emplace_back(rank, connection.ask(rank, {.task = Task::step, .of = id, .context = context.id_}));
  }
  for (const auto& [rank, answer] : answers) {
    connection.wait(rank, answer);
  }
}

}  // namespace stagecoach
