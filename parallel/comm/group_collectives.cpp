// The collectives of GroupCommunicator. Whatever a transport does, they count, are traced, and take as long by a
// virtual clock as the algorithms of link.h and network.h.

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>

#include "core/base/on_exit.h"
#include "core/trace.h"
#include "parallel/comm/group_communicator.h"

namespace stagecoach {

namespace {

/// From each rank to the next one.
CollectiveLinks ring_links(const Group& group, double bytes) {
  const int size = group.size();
  return size == 1 ? CollectiveLinks{}
                   : CollectiveLinks{{{(group.rank + 1) % size, bytes}}, {(group.rank + size - 1) % size}};
}

/// From each other rank to the root.
CollectiveLinks links_to_root(const Group& group, int root, double bytes) {
  if (group.rank != root) {
    return {.to = {{root, bytes}}};
  }
  CollectiveLinks links;
  for (int other = 1; other < group.size(); ++other) {
    links.from.push_back((root + other) % group.size());
  }
  return links;
}

/// Down a tree from the root: in each round, the ranks that have the data pass it on.
CollectiveLinks links_from_root(const Group& group, int root, double bytes) {
  const int size = group.size();
  const int above = (group.rank - root + size) % size;  // this rank's number, counted from the root
  CollectiveLinks links;
  for (int have = 1; have < size; have *= 2) {
    if (above < have && above + have < size) {
      links.to.emplace((group.rank + have) % size, bytes);
    } else if (above >= have && above < 2 * have) {
      links.from.push_back((group.rank - have + size) % size);
    }
  }
  return links;
}

FlightRecorder::Event collective_event(const char* operation, const Group& group, const Tensor* tensor) {
  FlightRecorder::Event event{.operation = operation, .group = group.name};
  if (tensor != nullptr) {
    event.dtype = tensor->dtype();
    event.shape = tensor->shape();
  }
  return event;
}

}  // namespace

/// Only a collective within another span, as part of a step, is on the tracks of the links.
template <class Exchange>
auto GroupCommunicator::collective(const char* operation, const Tensor* tensor, const CollectiveModel& model,
                                   const Exchange& exchange) {
  constexpr int kTag = -1;  // in the trace
  const bool is_shown = is_in_span();
  const Recorded recorded(*recorder_, collective_event(operation, group(), tensor));
  Span span(operation, "wait");
  for (const auto& [to, bytes] : model.links.to) {
    group().sent->add(member(to), bytes);
    if (is_shown) {
      trace_send(to, kTag, static_cast<std::size_t>(bytes));
    }
  }
  if (tensor != nullptr) {
    span.set_bytes(tensor->bytes());
    require_here(operation, *tensor);
  }
  const OnExit use([&] {
    for (const int from : model.links.from) {
      if (is_shown) {
        trace_use(from, kTag, clock().now());
      }
    }
  });
  std::optional<Waiting> waiting;
  std::optional<UncountedMemory> memory;
  if (clock().kind() == ClockKind::modelled) {
    memory.emplace();
  }
  if (clock().kind() != ClockKind::wall) {
    const double now = clock().now();
    waiting.emplace(clock());
    waiting->until_all(latest_time(operation, now), model.seconds);
  }
  if (clock().kind() == ClockKind::virtual_time) {
    waiting.reset();  // the transport measures its own work; on a modelled clock that is part of the model
  }
  return exchange();
}

void GroupCommunicator::all_reduce(Tensor& tensor) {
  const double bytes = bytes_of(tensor);
  collective("all_reduce", &tensor,
             {ring_all_reduce_seconds(slowest_link(), size(), bytes),
              ring_links(group(), 2 * (size() - 1) * (bytes / size()))},
             [&] { do_all_reduce(tensor); });
}

void GroupCommunicator::reduce(Tensor& tensor, int root) {
  require_root("reduce", root);
  const double bytes = bytes_of(tensor);
  collective("reduce", &tensor,
             {root_reduce_seconds(slowest_link(), size(), bytes), links_to_root(group(), root, bytes)},
             [&] { do_reduce(tensor, root); });
}

void GroupCommunicator::broadcast(Tensor& tensor, int root) {
  require_root("broadcast", root);
  const double bytes = bytes_of(tensor);
  collective("broadcast", &tensor,
             {tree_broadcast_seconds(slowest_link(), size(), bytes), links_from_root(group(), root, bytes)},
             [&] { do_broadcast(tensor, root); });
}

std::vector<Tensor> GroupCommunicator::all_gather(const Tensor& tensor) {
  const double bytes = bytes_of(tensor);
  std::vector<Tensor> gathered =
      collective("all_gather", &tensor,
                 {ring_all_gather_seconds(slowest_link(), size(), bytes), ring_links(group(), (size() - 1) * bytes)},
                 [&] { return do_all_gather("all_gather", tensor); });
  std::transform(gathered.begin(), gathered.end(), gathered.begin(),
                 [this](const Tensor& each) { return counted(each); });
  return gathered;
}

void GroupCommunicator::all_gather_into(Tensor& whole, const Tensor& part) {
  require_divisible("all_gather_into", whole);
  STAGECOACH_CHECK(part.dtype() == whole.dtype() && part.shape() == whole.shape().with(0, whole.size(0) / size()),
                   "{}: expected part {} of {} to fill the tensor, got {} for {}", error_context("all_gather_into"),
                   rank(), size(), describe(part), describe(whole));
  require_here("all_gather_into", whole);
  const double bytes = bytes_of(part);
  collective("all_gather_into", &part,
             {ring_all_gather_seconds(slowest_link(), size(), bytes), ring_links(group(), (size() - 1) * bytes)}, [&] {
               Tensor mine = part_of(whole, rank());
               if (part.storage() != mine.storage() || part.offset() != mine.offset()) {
                 mine.copy_from(part);
               }
               do_all_gather_into(whole, part);
             });
}

Tensor GroupCommunicator::reduce_scatter(const Tensor& tensor) {
  require_divisible("reduce_scatter", tensor);
  const double bytes = bytes_of(tensor);
  return counted(collective("reduce_scatter", &tensor,
                            {ring_reduce_scatter_seconds(slowest_link(), size(), bytes),
                             ring_links(group(), (size() - 1) * (bytes / size()))},
                            [&] { return do_reduce_scatter(tensor); }));
}

Tensor GroupCommunicator::all_to_all(const Tensor& rows, const RowCounts& send_rows, const RowCounts& receive_rows) {
  require_counts(rows, send_rows, receive_rows);
  return counted(collective("all_to_all", &rows, all_to_all_model(rows, send_rows, receive_rows),
                            [&] { return do_all_to_all(rows, send_rows, receive_rows); }));
}

/// No link is traced for a pair of ranks without rows.
CollectiveModel GroupCommunicator::all_to_all_model(const Tensor& rows, const RowCounts& send_rows,
                                                    const RowCounts& receive_rows) const {
  const auto row_bytes =
      static_cast<double>(rows.shape().with(0, 1).numel()) * static_cast<double>(size_of(rows.dtype()));
  CollectiveModel model;
  std::vector<double> longest;  // message of each step
  for (int step = 1; step < size(); ++step) {
    const int to = (rank() + step) % size();
    const int from = (rank() - step + size()) % size();
    const auto sent = row_bytes * static_cast<double>(send_rows[static_cast<std::size_t>(to)]);
    const auto received = row_bytes * static_cast<double>(receive_rows[static_cast<std::size_t>(from)]);
    longest.push_back(std::max(sent, received));
    if (sent > 0) {
      model.links.to.emplace(to, sent);
    }
    if (received > 0) {
      model.links.from.push_back(from);
    }
  }
  model.seconds = clock().network().all_to_all_seconds(group().members, group().siblings, longest);
  return model;
}

void GroupCommunicator::barrier() {
  collective("barrier", nullptr, {tree_broadcast_seconds(slowest_link(), size(), 0)}, [&] { do_barrier(); });
}

std::unique_ptr<Communicator> GroupCommunicator::split(int colour, int key) {
  const Tensor mine = Tensor::from(std::vector<std::int32_t>{colour, key}, {2}, number_device());
  return collective("split", nullptr, {}, [&] { return make_part(part_of(colour, do_all_gather("split", mine))); });
}

/// `choices` are the colour and key of each rank. Siblings of this group that have as many ranks are taken to be split
/// in the same way.
Group GroupCommunicator::part_of(int colour, const std::vector<Tensor>& choices) {
  std::map<int, std::vector<std::pair<int, int>>> chosen;  // by colour: the keys and ranks of those that passed it
  for (int other = 0; other < size(); ++other) {
    const auto choice = choices[static_cast<std::size_t>(other)].to_vector<std::int32_t>();
    chosen[choice[0]].emplace_back(choice[1], other);
  }
  Group part = group();
  part.name = fmt::format("{}.{}:{}", group().name, splits_++, colour);
  part.siblings.clear();
  for (auto& [of_colour, ranks] : chosen) {
    std::sort(ranks.begin(), ranks.end());
    for (const std::vector<int>& parent : group().siblings) {
      if (parent.size() == group().members.size()) {
        std::vector<int>& sibling = part.siblings.emplace_back();
        std::transform(ranks.begin(), ranks.end(), std::back_inserter(sibling),
                       [&](const auto& chosen_rank) { return parent[static_cast<std::size_t>(chosen_rank.second)]; });
      }
    }
  }
  part.members.clear();
  for (const auto& [key, other] : chosen.at(colour)) {
    part.rank = other == rank() ? part.size() : part.rank;
    part.members.push_back(member(other));
  }
  return part;
}

Link GroupCommunicator::slowest_link() const { return clock().network().among(group().members, group().siblings); }

void GroupCommunicator::require_root(const char* operation, int root) const {
  STAGECOACH_CHECK(root >= 0 && root < size(),
                   "{}: expected a root of at least 0 and less than the group's size, got {} of {}",
                   error_context(operation), root, size());
}

void GroupCommunicator::require_divisible(const char* operation, const Tensor& whole) const {
  STAGECOACH_CHECK(whole.dims() > 0 && whole.size(0) % size() == 0,
                   "{}: the first extent of {} cannot be divided evenly among {} ranks", error_context(operation),
                   describe(whole), size());
}

void GroupCommunicator::require_counts(const Tensor& rows, const RowCounts& send_rows,
                                       const RowCounts& receive_rows) const {
  const auto are_counts = [&](const RowCounts& counts) {
    return counts.size() == static_cast<std::size_t>(size()) &&
           std::all_of(counts.begin(), counts.end(), [](std::int64_t count) { return count >= 0; });
  };
  STAGECOACH_CHECK(
      rows.dims() > 0 && are_counts(send_rows) && are_counts(receive_rows) &&
          std::accumulate(send_rows.begin(), send_rows.end(), std::int64_t{0}) == rows.size(0),
      "{}: expected one count per rank, {} in all, that add up to the rows of {}, got {} to send and {} to "
      "receive",
      error_context("all_to_all"), size(), describe(rows), fmt::join(send_rows, " + "), fmt::join(receive_rows, " + "));
  const auto self = static_cast<std::size_t>(rank());
  STAGECOACH_CHECK(send_rows[self] == receive_rows[self],
                   "{}: expected as many rows from this rank as it keeps for itself, {}, got {}",
                   error_context("all_to_all"), send_rows[self], receive_rows[self]);
}

std::vector<Tensor> GroupCommunicator::parts_of(const Tensor& whole, const RowCounts& counts) {
  std::vector<Tensor> parts;
  std::int64_t start = whole.offset();
  for (const std::int64_t rows : counts) {
    parts.push_back(whole.alias(whole.shape().with(0, rows), start));
    start += parts.back().numel();
  }
  return parts;
}

Tensor GroupCommunicator::received_rows(const Tensor& rows, const RowCounts& receive_rows) {
  const std::int64_t received = std::accumulate(receive_rows.begin(), receive_rows.end(), std::int64_t{0});
  return Tensor::empty(rows.shape().with(0, received), rows.dtype(), rows.device());
}

Tensor GroupCommunicator::part_of(const Tensor& whole, int rank) const {
  const Shape shape = whole.shape().with(0, whole.size(0) / size());
  return whole.alias(shape, whole.offset() + rank * shape.numel());
}

CommError GroupCommunicator::other_operation(const std::string& operation, int other, const std::string& theirs) const {
  return CommError(fmt::format(
      "{}: rank {} calls {} at this point; let all ranks of a group call the same collectives in the same order",
      error_context(operation), member(other), theirs));
}

CommError GroupCommunicator::other_type(const char* operation, const Tensor& mine, int other,
                                        const std::string& theirs) const {
  return CommError(fmt::format("{}: expected tensors of the same shape and type, got {} here and {} on rank {}",
                               error_context(operation), type_of(mine), theirs, member(other)));
}

CommError GroupCommunicator::other_rows(const char* operation, int from, const std::string& sent, int to,
                                        const std::string& expected) const {
  return CommError(
      fmt::format("{}: rank {} sends {} to rank {}, which expects {}; let each rank pass as receive_rows what "
                  "exchange_counts returns",
                  error_context(operation), member(from), sent, member(to), expected));
}

}  // namespace stagecoach
