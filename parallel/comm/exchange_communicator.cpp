#include "parallel/comm/exchange_communicator.h"

#include <algorithm>

#include "parallel/comm/ordered_sum.h"

namespace stagecoach {
namespace {

constexpr std::size_t kShort = 256 << 10;  // bytes that take less time than another exchange

/// Returns a receive buffer with the shape and type of a tensor.
Tensor room_for(const Tensor& tensor) { return Tensor::empty(tensor.shape(), tensor.dtype(), tensor.device()); }

/// Returns elements `start` … `end` - 1 as a one-dimensional alias.
Tensor row(const Tensor& tensor, std::int64_t start, std::int64_t end) {
  return tensor.alias({end - start}, tensor.offset() + start);
}

}  // namespace

/// A collective also has a time by a virtual clock: it takes `seconds` from the time when the last rank arrives.
class ExchangeCommunicator::TimedScope {
 public:
  TimedScope(ExchangeCommunicator& comm, const char* operation, const Tensor& tensor, double seconds, Route route,
             int root = 0)
      : scope_(comm, operation, tensor, route, root), waiting_(comm.clock()) {
    comm.require_here(operation, tensor);
    waiting_.until_all(comm.latest_time(operation, tensor), seconds);
  }

 private:
  const CollectiveScope scope_;
  Waiting waiting_;
};

template <class Make>
ExchangeCommunicator::ExchangeBuffers ExchangeCommunicator::for_each_peer(const Make& make) const {
  ExchangeBuffers buffers = nothing();
  for (int r = 0; r < size(); ++r) {
    buffers[static_cast<std::size_t>(r)] = r == rank() ? PeerBuffers{} : make(r);
  }
  return buffers;
}

double ExchangeCommunicator::latest_time(const char* operation, const Tensor& like) {
  if (clock().kind() == ClockKind::wall) {
    return 0;
  }
  const Tensor mine = Tensor::from(std::vector{clock().now()}, {1}, device());
  ExchangeBuffers buffers = for_each_peer([&](int) { return PeerBuffers{mine, room_for(mine)}; });
  exchange(operation, like, buffers);
  double latest = mine.item();
  for (const PeerBuffers& buffer : buffers) {
    latest = buffer.in.defined() ? std::max(latest, buffer.in.item()) : latest;
  }
  return latest;
}

std::vector<ExchangeCommunicator::Choice> ExchangeCommunicator::gather_choices(int colour, int key) {
  const Tensor mine = Tensor::from(std::vector<std::int32_t>{colour, key}, {2}, device());
  std::vector<Choice> choices;
  for (const Tensor& theirs : gather("split", mine)) {
    const auto numbers = theirs.to_vector<std::int32_t>();
    choices.push_back({numbers[0], numbers[1], static_cast<int>(choices.size())});
  }
  return choices;
}

void ExchangeCommunicator::sum_into(const Tensor& mine, const ExchangeBuffers& buffers) const {
  std::vector<Tensor> parts;
  parts.reserve(buffers.size());
  for (int r = 0; r < size(); ++r) {
    parts.push_back(r == rank() ? mine : buffers[static_cast<std::size_t>(r)].in);
  }
  sum_in_order(parts, static_cast<std::size_t>(rank()));
}

void ExchangeCommunicator::all_reduce(Tensor& tensor) {
  const TimedScope scope(*this, "all_reduce", tensor, ring_all_reduce_seconds(slowest_link(), size(), bytes_of(tensor)),
                         Route::ring_all_reduce);
  const bool native = group().reduce == ReduceKind::native && tensor.numel() > 0;
  if (size() > 1 && !(native && sum_natively(tensor))) {
    const std::size_t others = static_cast<std::size_t>(size()) - 1;
    if (others * tensor.bytes() <= kShort) {
      sum_whole(tensor);
    } else {
      sum_in_parts(tensor);
    }
  }
}

/// Sums with one exchange: each rank receives the whole tensor of every other rank and adds them itself.
void ExchangeCommunicator::sum_whole(Tensor& tensor) {
  ExchangeBuffers buffers = for_each_peer([&](int r) { return PeerBuffers{tensor, kept_room_for(tensor, r)}; });
  exchange("all_reduce", tensor, buffers);
  sum_into(tensor, buffers);
}

/// Short sums are frequent, and allocating memory takes longer than adding, so receive buffers are kept.
Tensor ExchangeCommunicator::kept_room_for(const Tensor& tensor, int from) {
  rooms_.resize(static_cast<std::size_t>(size()));
  Tensor& room = rooms_[static_cast<std::size_t>(from)];
  if (!room.defined() || room.shape() != tensor.shape() || room.dtype() != tensor.dtype()) {
    room = room_for(tensor);
  }
  return room;
}

/// Sums in two steps: each rank sums its part over all ranks; then all ranks gather the parts. That takes two
/// exchanges, and about twice the tensor's bytes for any number of ranks.
void ExchangeCommunicator::sum_in_parts(Tensor& tensor) {
  const auto part_of = [&](int r) {
    return row(tensor, part_start(tensor.numel(), r, size()), part_start(tensor.numel(), r + 1, size()));
  };
  const Tensor mine = part_of(rank());
  ExchangeBuffers buffers = for_each_peer([&](int r) { return PeerBuffers{part_of(r), room_for(mine)}; });
  exchange("all_reduce", tensor, buffers);
  sum_into(mine, buffers);
  buffers = for_each_peer([&](int r) { return PeerBuffers{mine, part_of(r)}; });
  exchange("all_reduce, gathering", tensor, buffers);
}

void ExchangeCommunicator::reduce(Tensor& tensor, int root) {
  require_root("reduce", root);
  const TimedScope scope(*this, "reduce", tensor, root_reduce_seconds(slowest_link(), size(), bytes_of(tensor)),
                         Route::to_root, root);
  if (rank() != root) {
    ExchangeBuffers buffers = nothing();
    with(buffers, root).out = tensor;
    return exchange("reduce", tensor, buffers);
  }
  ExchangeBuffers buffers = for_each_peer([&](int) { return PeerBuffers{{}, room_for(tensor)}; });
  exchange("reduce", tensor, buffers);
  sum_into(tensor, buffers);
}

/// Broadcasts by a tree: in each round, the ranks that have the tensor pass it on.
void ExchangeCommunicator::broadcast(Tensor& tensor, int root) {
  require_root("broadcast", root);
  const TimedScope scope(*this, "broadcast", tensor, tree_broadcast_seconds(slowest_link(), size(), bytes_of(tensor)),
                         Route::from_root, root);
  const int relative_rank = (rank() - root + size()) % size();  // 0 for the root
  for (int have = 1; have < size(); have *= 2) {
    ExchangeBuffers buffers = nothing();
    if (relative_rank < have && relative_rank + have < size()) {
      with(buffers, (rank() + have) % size()).out = tensor;
    } else if (relative_rank >= have && relative_rank < 2 * have) {
      with(buffers, (rank() - have + size()) % size()).in = tensor;
    }
    exchange("broadcast", tensor, buffers);
  }
}

std::vector<Tensor> ExchangeCommunicator::all_gather(const Tensor& tensor) { return gather("all_gather", tensor); }

std::vector<Tensor> ExchangeCommunicator::gather(const char* operation, const Tensor& tensor) {
  const TimedScope scope(*this, operation, tensor, ring_all_gather_seconds(slowest_link(), size(), bytes_of(tensor)),
                         Route::ring_all_gather);
  ExchangeBuffers buffers = nothing();
  std::vector<Tensor> gathered;
  for (int r = 0; r < size(); ++r) {
    gathered.push_back(r == rank() ? tensor.clone() : room_for(tensor));
    with(buffers, r) = {tensor, gathered.back()};
  }
  exchange(operation, tensor, buffers);
  return gathered;
}

Tensor ExchangeCommunicator::reduce_scatter(const Tensor& tensor) {
  require_parts(tensor);
  const TimedScope scope(*this, "reduce_scatter", tensor,
                         ring_reduce_scatter_seconds(slowest_link(), size(), bytes_of(tensor)),
                         Route::ring_reduce_scatter);
  const std::int64_t length = tensor.numel() / size();
  const auto part_of = [&](int r) { return row(tensor, r * length, (r + 1) * length); };
  const Tensor mine = part_of(rank()).clone();
  ExchangeBuffers buffers = for_each_peer([&](int r) { return PeerBuffers{part_of(r), room_for(mine)}; });
  exchange("reduce_scatter", tensor, buffers);
  sum_into(mine, buffers);
  return mine.reshape(tensor.shape().with(0, tensor.size(0) / size()));
}

/// A dissemination barrier: after each round, a rank knows of twice as many others.
void ExchangeCommunicator::barrier() {
  const Tensor word = Tensor::zeros({1}, DType::uint8, device());  // some transports skip empty tensors
  const TimedScope scope(*this, "barrier", word, tree_broadcast_seconds(slowest_link(), size(), 0), Route::none);
  for (int heard = 1; heard < size(); heard *= 2) {
    ExchangeBuffers buffers = nothing();
    with(buffers, (rank() + heard) % size()).out = word;
    with(buffers, (rank() - heard + size()) % size()).in = room_for(word);
    exchange("barrier", word, buffers);
  }
}

}  // namespace stagecoach
