#include "parallel/rpc/master.h"

#include <map>
#include <sstream>

#include "core/autograd/grad_mode.h"
#include "core/base/error.h"
#include "core/base/parse.h"
#include "core/base/throw_if.h"
#include "parallel/rpc/distributed_autograd.h"
#include "parallel/rpc/worker.h"

namespace stagecoach {

using rpc::Task;

WorkerId::WorkerId(const std::string& name) {
  const auto ranks = numbers_in(name, "worker#");
  throw_if<UsageError>(!ranks || !std::in_range<int>(ranks->front()),
                       "remote call to '{}': expected the name of a worker, such as worker1", name);
  rank_ = static_cast<int>(ranks->front());
}

rpc::Value Future::value() {
  rpc::Value value = master_->connection_->wait(rank_, answer_);
  if (Tensor* tensor = std::get_if<Tensor>(&value)) {
    for (DistributedContext* context : master_->contexts_) {
      context->note_fetched(id_, *tensor);
    }
  }
  return value;
}

RRef::Owner::Owner(Master& of, int rank_, rpc::Id id_) : master(of), connection(of.connection_), rank(rank_), id(id_) {
  connection->require_worker(rank);
}

RRef::Owner::~Owner() { connection->drop_later(rank, id); }

Future RRef::fetch() const {
  const rpc::Answer answer = owner_->connection->ask(rank(), {.task = Task::send, .of = id()});
  return {owner_->master, rank(), id(), answer};
}

void RRef::confirm() const {
  rpc::Connection& connection = *owner_->connection;
  connection.wait(rank(), connection.ask(rank(), {.task = Task::confirm, .of = id()}));
}

NamedRRefs RRef::unpacked() const {
  rpc::Connection& connection = *owner_->connection;
  rpc::Id next = connection.new_ids(rpc::kMaxListed);
  const rpc::Answer answer = connection.ask(rank(), {.task = Task::unpack, .result = next, .of = id()});
  std::istringstream names(rpc::as<std::string>(connection.wait(rank(), answer), 0));
  NamedRRefs tensors;
  for (std::string name; std::getline(names, name);) {
    tensors.emplace_back(name, RRef(owner_->master, rank(), next++));
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

Master::PreparedCall Master::prepare(const rpc::Callee& callee, const std::vector<rpc::Argument>& arguments) {
  PreparedCall call{.result = RRef(*this, callee.rank, connection_->new_ids())};
  call.command = {.task = Task::call, .result = call.result.id(), .of = callee.object, .name = callee.name};
  std::map<rpc::Id, RRef> here;  // a value that is used twice is sent once
  for (const rpc::Argument& argument : arguments) {
    if (const auto* reference = std::get_if<RRef>(&argument)) {
      const auto found = here.find(reference->id());
      call.used.push_back(found == here.end() ? at(callee.rank, *reference) : found->second);
      here.emplace(reference->id(), call.used.back());
      call.command.arguments.emplace_back(rpc::Reference{call.used.back().id()});
    } else {
      rpc::Value value = std::get<rpc::Value>(argument);
      if (Tensor* tensor = std::get_if<Tensor>(&value)) {
        *tensor = copy_of(callee.rank, *tensor);
      }
      call.command.arguments.push_back(std::move(value));
    }
  }
  call.command.no_grad = !grad_enabled();
  call.command.position = BatchScope::current();
  if (grad_enabled() && !contexts_.empty()) {
    call.command.context = contexts_.back()->id_;
    call.command.needs_grad = contexts_.back()->record(call.result, arguments);
  }
  return call;
}

RRef Master::remote(const rpc::Callee& callee, const std::vector<rpc::Argument>& arguments) {
  const PreparedCall call = prepare(callee, arguments);
  connection_->tell(callee.rank, call.command);
  return call.result;
}

Future Master::rpc_async(const rpc::Callee& callee, const std::vector<rpc::Argument>& arguments) {
  const PreparedCall call = prepare(callee, arguments);
  const rpc::Id id = call.result.id();
  const Task send = call.command.context == 0 ? Task::send_and_drop : Task::send;  // a backward needs the result
  return {*this, callee.rank, id, connection_->ask(callee.rank, {call.command, {.task = send, .of = id}})};
}

Tensor Master::copy_of(int rank, const Tensor& tensor) const {
  STAGECOACH_CHECK(tensor.defined(), "remote call to rank {}: expected a tensor, got an undefined one", rank);
  const NoGrad no_grad;
  return tensor.clone().to(connection_->device());
}

RRef Master::put(const WorkerId& to, const Tensor& tensor) {
  RRef there(*this, to.rank(), connection_->new_ids());
  connection_->tell(to.rank(), {.task = Task::keep, .result = there.id(), .arguments = {copy_of(to.rank(), tensor)}});
  return there;
}

RRef Master::at(int rank, const RRef& value) {
  if (value.rank() == rank) {
    return value;
  }
  RRef there(*this, rank, connection_->new_ids());
  connection_->tell(value.rank(), {.task = Task::send, .peer = rank, .of = value.id()});
  connection_->tell(rank, {.task = Task::receive, .peer = value.rank(), .result = there.id()});
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
