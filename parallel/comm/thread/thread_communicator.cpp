#include "parallel/comm/thread/thread_communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/trace.h"
#include "parallel/comm/ordered_sum.h"

namespace stagecoach {

ThreadWorld::Address ThreadCommunicator::address_of(int from, int to, int tag) const {
  return {group().name, member(from), member(to), tag};
}

Tensor ThreadCommunicator::here(const Tensor& tensor) const {
  if (tensor.device() == device()) {
    return tensor;
  }
  const bool both_cpu = tensor.device().type == DeviceType::cpu && device().type == DeviceType::cpu;
  return both_cpu ? tensor.seen_from(device()) : tensor.to(device());
}

PendingSend ThreadCommunicator::send_async(const Tensor& tensor, int to, int tag) {
  require_peer("send", to, tag);
  require_here("send", tensor);
  count_message(to, bytes_of(tensor));
  const auto number = group().recorder->begin(message_event("send", to, tag, tensor.dtype(), tensor.shape()));
  trace_send(to, tag, tensor.bytes());
  const auto sent = world_->send(address_of(rank(), to, tag), tensor.detach(), clock().now(), link_to(to));
  const auto wait = [this, sent, number, to, tag, work = current_work()] {
    const Span span("send", "wait");
    Waiting waiting(clock());
    waiting.until(
        world_->wait_completed(member(rank()), *sent, wait_policy(), [&] { return send_context(to, tag, work); }));
    if (sent->copied.recorded()) {
      sent->copied.wait({device(), Stream::kCompute});  // later work may write to the tensor
    }
    group().recorder->end(number);
  };
  return {wait, [this, sent, number] {
            const bool completed = world_->is_completed(*sent);
            if (completed) {
              group().recorder->end(number);
            }
            return completed;
          }};
}

std::shared_ptr<ThreadWorld::Posted> ThreadCommunicator::post(int from, int tag, const Tensor& room) {
  const auto posted = world_->post(address_of(from, rank(), tag), room, clock().now(), link_to(from));
  return {posted.get(), [world = world_, posted](ThreadWorld::Posted*) { world->cancel(posted); }};
}

PendingReceive ThreadCommunicator::receive_async(const Shape& shape, DType dtype, int from, int tag) {
  require_peer("receive", from, tag);
  const bool is_copied = device().type == DeviceType::cuda;
  const auto receive = post(from, tag, is_copied ? Tensor::empty(shape, dtype, device()) : Tensor{});
  return PendingReceive([this, receive, shape, dtype, from, tag, work = current_work()] {
    const Recorded recorded(*group().recorder, message_event("receive", from, tag, dtype, shape));
    const auto context = [&] { return receive_context(from, tag, work); };
    const Tensor tensor = wait_for(*receive, context);
    if (tensor.shape() != shape || tensor.dtype() != dtype) {
      throw unexpected(context(), type_of(shape, dtype), type_of(tensor));
    }
    if (device().type == DeviceType::cuda) {
      receive->ready.wait({device(), Stream::kCompute});
    }
    trace_use(from, tag, receive->arrival);
    return here(tensor);
  });
}

Tensor ThreadCommunicator::wait_for(ThreadWorld::Posted& posted, const ErrorContext& context) {
  const Span span("receive", "wait");
  Waiting waiting(clock());
  world_->wait_matched(posted, wait_policy(), context);
  waiting.until(posted.arrival);
  posted.room = {};
  return std::exchange(posted.tensor, {});
}

void ThreadCommunicator::send_number(double number, int to, int tag) {
  require_peer("send_number", to, tag);
  const Recorded recorded(*group().recorder, message_event("send_number", to, tag, DType::float64, {1}));
  world_->send(address_of(rank(), to, tag), Tensor::from(std::vector{number}, {1}), clock().now(), link_to(to));
}

double ThreadCommunicator::receive_number(int from, int tag) {
  require_peer("receive_number", from, tag);
  const Recorded recorded(*group().recorder, message_event("receive_number", from, tag, DType::float64, {1}));
  const auto context = [&] { return error_context("receive_number", "from", from, tag); };
  const Tensor tensor = wait_for(*post(from, tag, {}), context);
  if (tensor.shape() != Shape{1} || tensor.dtype() != DType::float64) {
    throw unexpected(context(), "a number", type_of(tensor));
  }
  return tensor.to_vector<double>()[0];
}

std::optional<double> ThreadCommunicator::try_receive_number(int from, int tag) {
  require_peer("try_receive_number", from, tag);
  const auto posted = world_->post(address_of(from, rank(), tag), {}, clock().now(), link_to(from));
  world_->cancel(posted);  // has no effect if it was matched, and a receive that was withdrawn is matched no more
  return posted->matched ? std::optional(posted->tensor.item()) : std::nullopt;
}

template <class T>
std::vector<T> ThreadCommunicator::rendezvous(const char* operation, const T& mine, double seconds) {
  struct Brought {
    std::string operation;
    T mine;
    double time;
  };
  const std::string name = fmt::format("{}/{}", group().name, rendezvous_count_++);
  const double now = clock().now();
  Waiting waiting(clock());
  const auto brought = world_->rendezvous(name, rank(), group().members, Brought{operation, mine, now}, wait_policy(),
                                          [&] { return error_context(operation); });
  std::vector<T> all;
  double latest = now;
  for (int r = 0; r < size(); ++r) {
    const auto* theirs = std::any_cast<Brought>(&brought[static_cast<std::size_t>(r)]);
    if (theirs == nullptr || theirs->operation != operation) {
      throw other_operation(operation, r, theirs == nullptr ? "another operation" : theirs->operation);
    }
    latest = std::max(latest, theirs->time);
    all.push_back(theirs->mine);
  }
  waiting.until_all(latest, seconds);
  return all;
}

std::vector<Tensor> ThreadCommunicator::rendezvous_with(const char* operation, const Tensor& tensor, double seconds) {
  require_here(operation, tensor);
  struct Brought {
    Tensor tensor;
    Event ready;
  };
  Event ready;
  ready.record({device(), Stream::kCompute});
  std::vector<Tensor> tensors;
  for (const Brought& brought : rendezvous(operation, Brought{tensor.detach(), ready}, seconds)) {
    const int r = static_cast<int>(tensors.size());
    if (brought.tensor.shape() != tensor.shape() || brought.tensor.dtype() != tensor.dtype()) {
      throw other_type(operation, tensor, r, type_of(brought.tensor));
    }
    if (device().type == DeviceType::cuda) {
      brought.ready.wait({device(), Stream::kCompute});
    }
    tensors.push_back(brought.tensor);
  }
  return tensors;
}

Tensor ThreadCommunicator::sum_of(const std::vector<Tensor>& tensors, std::int64_t start, std::int64_t length) const {
  std::vector<Tensor> parts(tensors.size());
  std::transform(tensors.begin(), tensors.end(), parts.begin(),
                 [&](const Tensor& tensor) { return here(tensor.alias({length}, tensor.offset() + start)); });
  return ordered_sum(parts);
}

void ThreadCommunicator::all_reduce(Tensor& tensor) {
  const CollectiveScope scope(*this, "all_reduce", tensor, Route::ring_all_reduce);
  // Each rank sums its part of the elements over all ranks; then all ranks gather the parts. So each element is read
  // `size` times in all, instead of `size` times by every rank.
  const std::vector<Tensor> tensors =
      rendezvous_with("all_reduce", tensor, ring_all_reduce_seconds(slowest_link(), size(), bytes_of(tensor)));
  const std::int64_t count = tensor.numel();
  const std::int64_t start = part_start(count, rank(), size());
  const Tensor mine = sum_of(tensors, start, part_start(count, rank() + 1, size()) - start);
  synchronize({device(), Stream::kCompute});
  const auto parts = rendezvous("all_reduce, gathering", mine);
  // By now every rank has read the elements that it needs from this rank's tensor.
  for (int r = 0; r < size(); ++r) {
    const Tensor& part = parts[static_cast<std::size_t>(r)];
    Tensor into = tensor.alias({part.numel()}, tensor.offset() + part_start(count, r, size()));
    into.copy_from(here(part));
  }
}

void ThreadCommunicator::reduce(Tensor& tensor, int root) {
  require_root("reduce", root);
  const CollectiveScope scope(*this, "reduce", tensor, Route::to_root, root);
  const auto tensors = rendezvous_with("reduce", tensor, root_reduce_seconds(slowest_link(), size(), bytes_of(tensor)));
  if (rank() == root) {
    tensor.copy_from(sum_of(tensors, 0, tensor.numel()).reshape(tensor.shape()));
  }
  synchronize({device(), Stream::kCompute});
  rendezvous("reduce, ending", root);  // after this the others may change their tensors
}

void ThreadCommunicator::broadcast(Tensor& tensor, int root) {
  require_root("broadcast", root);
  const CollectiveScope scope(*this, "broadcast", tensor, Route::from_root, root);
  const auto tensors =
      rendezvous_with("broadcast", tensor, tree_broadcast_seconds(slowest_link(), size(), bytes_of(tensor)));
  if (rank() != root) {
    tensor.copy_from(here(tensors[static_cast<std::size_t>(root)]));
  }
  synchronize({device(), Stream::kCompute});
  rendezvous("broadcast, ending", root);  // after this the root may change its tensor
}

std::vector<Tensor> ThreadCommunicator::all_gather(const Tensor& tensor) {
  const CollectiveScope scope(*this, "all_gather", tensor, Route::ring_all_gather);
  std::vector<Tensor> gathered;
  const double seconds = ring_all_gather_seconds(slowest_link(), size(), bytes_of(tensor));
  for (const Tensor& theirs : rendezvous_with("all_gather", tensor, seconds)) {
    gathered.push_back(here(theirs).clone());
  }
  synchronize({device(), Stream::kCompute});
  rendezvous("all_gather, ending", 0);
  return gathered;
}

Tensor ThreadCommunicator::reduce_scatter(const Tensor& tensor) {
  require_parts(tensor);
  const CollectiveScope scope(*this, "reduce_scatter", tensor, Route::ring_reduce_scatter);
  const auto tensors =
      rendezvous_with("reduce_scatter", tensor, ring_reduce_scatter_seconds(slowest_link(), size(), bytes_of(tensor)));
  const std::int64_t length = tensor.numel() / size();
  const Tensor sum = sum_of(tensors, rank() * length, length);
  synchronize({device(), Stream::kCompute});
  rendezvous("reduce_scatter, ending", 0);
  return sum.reshape(tensor.shape().with(0, tensor.size(0) / size()));
}

void ThreadCommunicator::barrier() {
  const CollectiveScope scope(*this, "barrier");
  synchronize({device(), Stream::kCompute});
  rendezvous("barrier", 0, tree_broadcast_seconds(slowest_link(), size(), 0));
}

std::unique_ptr<Communicator> ThreadCommunicator::split(int colour, int key) {
  const CollectiveScope scope(*this, "split");
  Group part = chosen_from(rendezvous("split", Choice{colour, key, rank()}));
  return std::make_unique<ThreadCommunicator>(world_, std::move(part), wait_policy().mode, wait_policy().may_spin);
}

std::unique_ptr<Communicator> ThreadCommunicator::duplicate() {
  constexpr bool kMaySpin = false;
  return std::make_unique<ThreadCommunicator>(world_, duplicated(), wait_policy().mode, kMaySpin);
}

void ThreadCommunicator::set_spinning(bool spinning) {
  GroupCommunicator::set_spinning(spinning);
  if (wait_policy().polls()) {
    world_->call(member(rank()));
  }
}

void ThreadCommunicator::abort() {
  GroupCommunicator::abort();
  world_->call(member(rank()));
}

}  // namespace stagecoach
