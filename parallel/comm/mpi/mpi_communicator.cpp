#include "parallel/comm/mpi/mpi_communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "core/stream.h"
#include "core/trace.h"

namespace stagecoach {
namespace {

enum Kind { kMessage, kTaken, kMeeting, kKinds };  // messages of different kinds do not meet

int mpi_tag(int tag, Kind kind) { return tag * kKinds + kind; }

/// The spare message, or a new one; without requests.
template <class Message>
std::shared_ptr<Message> unused(std::shared_ptr<Message>& spare) {
  auto message = spare ? std::exchange(spare, nullptr) : std::make_shared_for_overwrite<Message>();
  message->requests.clear();
  return message;
}

}  // namespace

MpiCommunicator::MpiCommunicator(MpiWorld& world, MPI_Comm comm, Group group, Waits waits, bool has_core)
    : ExchangeCommunicator(std::move(group)),
      world_(world),
      comm_(comm),
      patience_{waits, abandoned_.get_token(), has_core},
      exchange_(std::make_shared<Exchange>()) {
  MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  exchange_->out.resize(static_cast<std::size_t>(size()));
  exchange_->in.resize(static_cast<std::size_t>(size()));
}

MpiCommunicator::~MpiCommunicator() {
  for (const auto& sent : sent_) {
    if (world_.failed() || !world_.are_done(sent->requests)) {
      world_.bury(sent);
    }
  }
  if (world_.failed()) {
    world_.bury(exchange_);
  } else {
    MPI_Comm_free(&comm_);
  }
}

void MpiCommunicator::exchange(const char* operation, const Tensor& like, Parcels& parcels) {
  synchronize({device(), Stream::kCompute});  // MPI reads what the device has made
  const MpiWorld::Words words = [&] { return doing(operation); };
  const MpiHeader header(operation, like, 0);
  MpiRequests& requests = exchange_->requests;
  requests.clear();
  // The next rank first: then not all talk to the same one at once.
  for (int i = 1; i < size(); ++i) {
    const int r = (rank() + i) % size();
    const MpiAddress address{comm_, r, mpi_tag(0, kMeeting)};
    const auto place = static_cast<std::size_t>(r);
    if (parcels[place].in.defined()) {
      exchange_->in[place].start(address, parcels[place].in, requests, words);
    }
    if (parcels[place].out.defined()) {
      exchange_->out[place].start(address, header, parcels[place].out, requests, words);
    }
  }
  world_.wait(requests, patience_, words);
  for (int i = 1; i < size(); ++i) {
    const int r = (rank() + i) % size();
    const auto place = static_cast<std::size_t>(r);
    if (parcels[place].in.defined()) {
      require_same(operation, like, exchange_->in[place].header(), r);
      exchange_->in[place].end();
    }
    exchange_->out[place].end();
  }
}

void MpiCommunicator::require_same(const char* operation, const Tensor& like, const MpiHeader& theirs, int from) const {
  const MpiHeader mine(operation, like, 0);
  if (theirs.operation != mine.operation) {
    throw other_operation(operation, from, theirs.operation.data());
  }
  if (!theirs.is_of_same_type(mine)) {
    throw other_type(operation, like, from, theirs.type());
  }
}

/// What was sent completely needs no memory any more.
void MpiCommunicator::forget_sent() {
  while (!sent_.empty() && world_.are_done(sent_.front()->requests)) {
    sent_.front()->message.end();
    if (sent_.front().use_count() == 1) {
      spare_sent_ = std::move(sent_.front());
    }
    sent_.pop_front();
  }
}

std::shared_ptr<MpiCommunicator::Sent> MpiCommunicator::start_send(const char* operation, const Tensor& tensor, int to,
                                                                   int tag) {
  forget_sent();
  synchronize({device(), Stream::kCompute});
  const auto sent = unused(spare_sent_);
  sent->taken_at = 0;
  const double arrival = is_virtual() ? arrival_of(tensor.bytes(), to) : 0;
  const MpiWorld::Words words = [&] { return doing(operation, "to", to, tag); };
  sent->message.start({comm_, to, mpi_tag(tag, kMessage)}, {operation, tensor, arrival}, tensor, sent->requests, words);
  if (is_virtual()) {  // the receiver tells when it took it
    MpiWorld::check(MPI_Irecv(&sent->taken_at, 1, MPI_DOUBLE, to, mpi_tag(tag, kTaken), comm_,
                              &sent->requests.emplace_back(MPI_REQUEST_NULL)),
                    words);
  }
  sent_.push_back(sent);
  return sent;
}

PendingSend MpiCommunicator::send_async(const Tensor& tensor, int to, int tag) {
  require_peer("send", to, tag);
  require_here("send", tensor);
  const auto number = group().recorder->begin(message_event("send", to, tag, tensor.dtype(), tensor.shape()));
  const auto sent = start_send("send", tensor.detach(), to, tag);
  const auto end = [this, sent, number] {
    sent->message.end();
    group().recorder->end(number);
  };
  const auto wait = [this, sent, to, tag, work = current_work(), end] {
    Waiting waiting(clock());
    world_.wait(sent->requests, patience_, [&] {
      const Activity then(work.operation, work.stage, work.microbatch);
      return doing("send", "to", to, tag);
    });
    waiting.until(sent->taken_at);
    end();
  };
  return {wait, [this, sent, end] {
            const bool is_taken = world_.are_done(sent->requests);
            if (is_taken) {
              end();
            }
            return is_taken;
          }};
}

Tensor MpiCommunicator::take(const char* operation, const Tensor& tensor, int from, int tag) {
  const Recorded recorded(*group().recorder, message_event(operation, from, tag, tensor.dtype(), tensor.shape()));
  const Span span("receive", "wait");
  const MpiWorld::Words words = [&] { return doing(operation, "from", from, tag); };
  const double now = is_virtual() ? clock().now() : 0;
  Waiting waiting(clock());
  const auto expected = unused(spare_expected_);
  expected->message.start({comm_, from, mpi_tag(tag, kMessage)}, tensor, expected->requests, words);
  try {
    world_.wait(std::span(expected->requests).first(1), patience_, words);
    if (!expected->message.header().is_of_same_type({operation, tensor, 0})) {
      throw unexpected(words(), type_of(tensor), expected->message.header().type());
    }
    world_.wait(expected->requests, patience_, words);
  } catch (...) {
    world_.bury(expected);  // MPI may still write there
    throw;
  }
  expected->message.end();
  spare_expected_ = expected;
  if (is_virtual()) {
    const double taken_at = std::max(now, expected->message.header().arrival);
    waiting.until(taken_at);
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Isend(&taken_at, 1, MPI_DOUBLE, from, mpi_tag(tag, kTaken), comm_, &request);
    world_.wait({&request, 1}, patience_, words);  // short: MPI has it at once
  }
  return tensor;
}

PendingReceive MpiCommunicator::receive_async(const Shape& shape, DType dtype, int from, int tag) {
  require_peer("receive", from, tag);
  return PendingReceive(
      [this, shape, dtype, from, tag] { return take("receive", Tensor::empty(shape, dtype, device()), from, tag); });
}

void MpiCommunicator::send_number(double number, int to, int tag) {
  require_peer("send_number", to, tag);
  const Recorded recorded(*group().recorder, message_event("send_number", to, tag, DType::float64, {1}));
  start_send("send_number", Tensor::from(std::vector{number}, {1}), to, tag);
}

double MpiCommunicator::receive_number(int from, int tag) {
  require_peer("receive_number", from, tag);
  return take("receive_number", Tensor::empty({1}, DType::float64), from, tag).item();
}

std::unique_ptr<Communicator> MpiCommunicator::split(int colour, int key) {
  Group part = chosen_from(gather_choices(colour, key));
  MPI_Comm comm = MPI_COMM_NULL;
  // MPI takes colours from 0, so the first member stands for the group's. All have come by now.
  world_.guard("MPI_Comm_split", [&] { MPI_Comm_split(comm_, part.members[0], part.rank, &comm); });
  return std::make_unique<MpiCommunicator>(world_, comm, std::move(part), patience_.waits, patience_.has_core);
}

std::unique_ptr<Communicator> MpiCommunicator::duplicate() {
  MPI_Comm comm = MPI_COMM_NULL;
  world_.guard("MPI_Comm_dup", [&] { MPI_Comm_dup(comm_, &comm); });
  constexpr bool kHasCore = false;
  return std::make_unique<MpiCommunicator>(world_, comm, duplicated(), patience_.waits, kHasCore);
}

}  // namespace stagecoach
