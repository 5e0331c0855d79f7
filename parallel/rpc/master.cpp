#include "parallel/rpc/master.h"

#include <sstream>

#include "core/autograd/grad_mode.h"
#include "core/base/error.h"
#include "core/base/throw_if.h"
#include "parallel/rpc/distributed_autograd.h"
#include "parallel/rpc/worker.h"

namespace stagecoach {

using rpc::Task;

Future::Future(Master& master, int rank, rpc::Id id, rpc::Answer answer)
    : master_(&master), rank_(rank), id_(id), answer_(std::move(answer)), context_(master.context_id()) {}

Tensor Future::wait() {
  Tensor tensor = master_->connection_->wait(rank_, answer_);
  if (context_ != 0 && context_ == master_->context_id()) {
    master_->context_->note_fetched(id_, tensor);
  }
  return tensor;
}

RRef::Owner::Owner(Master& of, int rank_, rpc::Id id_) : master(of), connection(of.connection_), rank(rank_), id(id_) {
  connection->require_worker(rank);
}

RRef::Owner::~Owner() { connection->tell_later(rank, {.task = Task::drop, .of = id}); }

Future RRef::fetch() const {
  const rpc::Answer answer = owner_->connection->ask(rank(), {.task = Task::send, .of = id(), .peer = 0});
  return {owner_->master, rank(), id(), answer};
}

RRef RemoteModule::forward(const RRef& x) const { return forward(x, master_->at(rank_, x), {}); }

RRef RemoteModule::forward(const Tensor& x) const {
  const RRef input(*master_, rank_, master_->connection_->new_ids());
  return forward(input, input, {master_->keep(rank_, input.id(), x)});
}

RRef RemoteModule::forward(const RRef& x, const RRef& input, std::vector<rpc::Command> before) const {
  const RRef output(*master_, rank_, master_->connection_->new_ids());
  DistributedContext* context = master_->context_;
  const bool needs_input_grad = context != nullptr && context->record(output, input, x);
  before.push_back({.task = Task::forward,
                    .result = output.id(),
                    .of = id_,
                    .context = master_->context_id(),
                    .needs_input_grad = needs_input_grad,
                    .arguments = {input.id()}});
  master_->connection_->tell(rank_, std::move(before));
  return output;
}

void RemoteModule::train(bool on) const {
  master_->connection_->tell(rank_, {.task = Task::train, .of = id_, .is_on = on});
}

NamedRRefs RemoteModule::list(Task task) const {
  rpc::Connection& connection = *master_->connection_;
  rpc::Id next = connection.new_ids(rpc::kMaxListed);
  const Tensor text = connection.wait(rank_, connection.ask(rank_, {.task = task, .result = next, .of = id_}));
  NamedRRefs tensors;
  std::istringstream names(text.defined() ? rpc::text_of(text) : "");
  for (std::string name; std::getline(names, name);) {
    tensors.emplace_back(name, RRef(*master_, rank_, next++));
  }
  return tensors;
}

NamedTensors to_here(const NamedRRefs& tensors) {
  NamedTensors copies;
  for (const auto& [name, tensor] : tensors) {
    copies.emplace_back(name, tensor.to_here());
  }
  return copies;
}

RemoteModule Master::remote(int rank, const std::string& factory) {
  const rpc::Id id = connection_->new_ids();
  connection_->wait(rank, connection_->ask(rank, {.task = Task::make_module, .result = id, .name = factory}));
  return {*this, rank, id};
}

Future Master::rpc_async(int rank, const std::string& function, const std::vector<Tensor>& arguments) {
  connection_->require_worker(rank);
  // All in one message, so that the call takes one each way. The worker keeps nothing of it.
  std::vector<rpc::Command> commands;
  std::vector<rpc::Id> ids;
  for (const Tensor& argument : arguments) {
    ids.push_back(connection_->new_ids());
    commands.push_back(keep(rank, ids.back(), argument));
  }
  const rpc::Id result = connection_->new_ids();
  commands.push_back({.task = Task::call, .result = result, .name = function, .arguments = ids});
  for (const rpc::Id id : ids) {  // before the result is sent, which may be one of them
    commands.push_back({.task = Task::drop, .of = id});
  }
  commands.push_back({.task = Task::send_and_drop, .of = result, .peer = 0});
  return {*this, rank, result, connection_->ask(rank, std::move(commands))};
}

rpc::Id Master::context_id() const { return context_ == nullptr ? 0 : context_->id_; }

rpc::Command Master::keep(int rank, rpc::Id as, const Tensor& tensor) const {
  STAGECOACH_CHECK(tensor.defined(), "remote call to rank {}: expected a tensor, got an undefined one", rank);
  const NoGrad no_grad;
  return {.task = Task::keep, .result = as, .value = {.tensor = tensor.clone().to(connection_->device())}};
}

RRef Master::put(int rank, const Tensor& tensor) {
  RRef there(*this, rank, connection_->new_ids());
  connection_->tell(rank, keep(rank, there.id(), tensor));
  return there;
}

RRef Master::at(int rank, const RRef& value) {
  if (value.rank() == rank) {
    return value;
  }
  RRef there(*this, rank, connection_->new_ids());
  connection_->tell(value.rank(), {.task = Task::send, .of = value.id(), .peer = rank});
  connection_->tell(rank, {.task = Task::receive, .result = there.id(), .peer = value.rank()});
  return there;
}

std::vector<rpc::Report> Master::reports() {
  std::vector<rpc::Report> all;
  for (int rank = 0; rank <= workers(); ++rank) {
    all.push_back(report(rank));
  }
  return all;
}

void run_with_master(const World& world, const RemoteTable& table, const std::function<void(Master& master)>& body) {
  throw_if<UsageError>(world.ranks < 2,
                       "remote calls need a master and at least one worker: expected at least 2 ranks, got {}; use "
                       "more `ranks`",
                       world.ranks);
  launch(world, [&](Rank& rank) {
    if (rank.index == 0) {
      Master master(rank.comm, world.timeout);
      body(master);
      master.shut_down();
    } else {
      rpc::serve_master(table, rank.comm, world.timeout);
    }
  });
}

}  // namespace stagecoach
