#include "datasets/npy.h"

#include <limits>

#include "support.h"

namespace stagecoach {
namespace {

/// A file as numpy.save writes it, in version 1.0, but without padding.
std::string npy(const std::string& header, const std::string& elements) {
  return std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(header.size() & 0xffU) +
         static_cast<char>(header.size() >> 8U) + header + elements;
}

TEST(Npy, WhatNumPyWritesIsRead) {
  const TemporaryFolder folder;
  write_text_file(folder / "a.npy",
                  npy("{'descr': '<i4', 'fortran_order': False, 'shape': (2, 1), }  \n", {1, 0, 0, 0, 2, 1, 0, 0}));
  const NpyFile file(folder / "a.npy");
  EXPECT_EQ(file.size(), 2);
  EXPECT_EQ(file.row(), (SampleType{{1}, DType::int32}));
  Tensor row = Tensor::empty({1}, DType::int32);
  file.read(1, row);
  EXPECT_EQ(row.item(), 258);
  std::string version_2 = "\x93NUMPY" + std::string("\x02\x00\x3c\x00\x00\x00", 6);
  version_2 += std::string("{'shape': (3,), 'fortran_order': False, 'descr': '|u1'}").append(5, ' ') + "abc";
  write_text_file(folder / "b.npy", version_2);
  EXPECT_EQ(NpyFile(folder / "b.npy").row(), (SampleType{{}, DType::uint8}));
}

TEST(Npy, WhatIsWrittenIsReadAndAlignedAsByNumPy) {
  const TemporaryFolder folder;
  for (const DType type : {DType::uint8, DType::int32, DType::float32, DType::float64}) {
    const Tensor rows = Tensor::full({3, 2, 5}, 7, type);
    NpyWriter writer(folder / "a.npy", 3, {{2, 5}, type});
    writer.write(rows.narrow(0, 1));
    expect_error<Error>([&] { writer.commit(); }, {"20 elements are missing"});
    writer.write(rows.narrow(1, 2));
    expect_error<Error>([&] { writer.write(rows); }, {"at most 0 elements"});
    writer.commit();
    const NpyFile file(folder / "a.npy");
    EXPECT_EQ(std::filesystem::file_size(folder / "a.npy"), 128 + rows.bytes());
    Tensor again = Tensor::empty({3, 2, 5}, type);
    file.read(0, again);
    EXPECT_EQ(std::memcmp(again.raw_data(), rows.raw_data(), rows.bytes()), 0);
  }
  expect_error<Error>([&] { NpyWriter(folder / "h.npy", 3, {{2}, DType::float16}); }, {"got float16"});
}

TEST(Npy, DamagedFilesAreRefused) {
  const TemporaryFolder folder;
  const auto expect_refused = [&](const std::string& bytes, const std::vector<std::string>& parts) {
    write_text_file(folder / "a.npy", bytes);
    expect_error<DataError>([&] { NpyFile(folder / "a.npy"); }, parts);
  };
  expect_refused("", {"a.npy", "too short"});
  expect_refused("PK\x03\x04 is a zip of several arrays", {"other bytes at its beginning"});
  expect_refused(npy("", "").substr(0, 9) + "\xff and no more", {"a header of"});
  expect_refused(npy("{'fortran_order': False, 'shape': (1,)}", "a"), {"without 'descr'"});
  expect_refused(npy("'descr':", "a"), {"|u1", "got"});
  expect_refused(npy("{'descr': '<i8', 'fortran_order': False, 'shape': (1,)}", "12345678"),
                 {"int32 (<i4)", "got '<i8'", "astype"});
  expect_refused(npy("{'descr': '|u1', 'fortran_order': True, 'shape': (1,)}", "a"), {"ascontiguousarray"});
  expect_refused(npy("{'descr': '|u1', 'fortran_order': False, 'shape': ()}", "a"), {"0 dimensions"});
  expect_refused(npy("{'descr': '|u1', 'fortran_order': False, 'shape': (0, 3)}", ""), {"the extent '0'"});
  expect_refused(npy("{'descr': '|u1', 'fortran_order': False, 'shape': (-1,)}", ""), {"the extent '-1'"});
  const auto huge = std::to_string(std::numeric_limits<std::int64_t>::max());
  expect_refused(npy("{'descr': '|u1', 'fortran_order': False, 'shape': (" + huge + ", " + huge + ")}", ""),
                 {"2^58 elements"});
  expect_refused(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", "1234567"),
                 {"truncated", "for float32[2]", "copy or write it again"});
  expect_refused(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", "123456789"), {"too long"});
}

}  // namespace
}  // namespace stagecoach
