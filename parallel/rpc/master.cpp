#include "parallel/rpc/master.h"

#include "core/autograd/grad_mode.h"
#include "core/error.h"
#include "core/parse.h"
#include "core/throw_if.h"
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

RRef RemoteModule::forward(const RRef& x) const {
  const RRef input = master_->at(rank_, x);
  const RRef output(*master_, rank_, master_->connection_->new_ids());
  DistributedContext* context = master_->context_;
  const bool needs_input_grad = context != nullptr && context->record(output, input, x);
  master_->connection_->tell(rank_, {.task = Task::forward,
                                     .result = output.id(),
                                     .of = id_,
                                     .context = master_->context_id(),
                                     .needs_input_grad = needs_input_grad,
                                     .arguments = {input.id()}});
  return output;
}

RRef RemoteModule::forward(const Tensor& x) const { return forward(master_->put(rank_, x)); }

std::vector<std::string> RemoteModule::parameter_names() const {
  rpc::Connection& connection = *master_->connection_;
  const Tensor text = connection.wait(rank_, connection.ask(rank_, {.task = Task::parameters, .of = id_}));
  if (!text.defined()) {
    return {};
  }
  const std::string list = rpc::text_of(text);
  const auto lines = split_text(list, '\n');
  return {lines.begin(), lines.end() - 1};  // each name ends with a newline
}

std::vector<RRef> RemoteModule::parameters() const {
  rpc::Connection& connection = *master_->connection_;
  const auto count = static_cast<rpc::Id>(parameter_names().size());
  const rpc::Id first = connection.new_ids(count);
  connection.wait(rank_, connection.ask(rank_, {.task = Task::parameters, .result = first, .of = id_}));
  std::vector<RRef> references;
  for (rpc::Id i = 0; i < count; ++i) {
    references.push_back(RRef(*master_, rank_, first + i));
  }
  return references;
}

RemoteModule Master::remote(int rank, const std::string& factory) {
  const rpc::Id id = connection_->new_ids();
  connection_->wait(rank, connection_->ask(rank, {.task = Task::make_module, .result = id, .name = factory}));
  return {*this, rank, id};
}

Future Master::rpc_async(int rank, const std::string& function, const std::vector<Tensor>& arguments) {
  std::vector<RRef> sent;
  std::vector<rpc::Id> ids;
  for (const Tensor& argument : arguments) {
    sent.push_back(put(rank, argument));
    ids.push_back(sent.back().id());
  }
  const RRef result(*this, rank, connection_->new_ids());
  connection_->tell(rank, {.task = Task::call, .result = result.id(), .name = function, .arguments = std::move(ids)});
  return result.fetch();
}

rpc::Id Master::context_id() const { return context_ == nullptr ? 0 : context_->id_; }

RRef Master::put(int rank, const Tensor& tensor) {
  STAGECOACH_CHECK(tensor.defined(), "remote call to rank {}: expected a tensor, got an undefined one", rank);
  RRef there(*this, rank, connection_->new_ids());
  const NoGrad no_grad;
  // All that may throw comes first: once told to receive, the worker waits. The sender may write to its own.
  const Tensor copy = tensor.clone().to(connection_->device());
  connection_->tell(rank, {.task = Task::receive, .result = there.id(), .peer = 0});
  connection_->send(rank, {.tensor = copy});
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

void run_with_master(const World& world, const RemoteTable& table, const std::function<void(Master& master)>& body) {
  throw_if<UsageError>(world.ranks < 2,
                       "remote calls need a master and at least one worker: expected at least 2 ranks, got {}; use "
                       "more --ranks",
                       world.ranks);
  launch(world, [&](Rank& rank) {
    if (rank.index == 0) {
      Master master(rank.comm, world.timeout);
      body(master);
      master.shut_down();
    } else {
      rpc::Worker(table, rank.comm).serve();
    }
  });
}

}  // namespace stagecoach
