// The volume of a job that is being submitted, under an id that no other job has.
//
// One thread per object; any number of objects at a time, in one process.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tesser::platform {

// `name`, a hyphen and random letters that are not taken for each other: "mnist-u33i3q".
Result<std::string> random_identifier(const std::string& name);
// Whether it is made so.
bool looks_like_identifier(std::string_view text);

// Goes with this object unless it was kept.
class NewVolume {
 public:
  // Makes DATA/incoming/ID, with the first id that neither a job nor another submission has. kFailed when the disk
  // refuses.
  static Result<NewVolume> make(const std::filesystem::path& data,
                                const std::function<Result<std::string>()>& next_identifier);
  NewVolume(NewVolume&& other) noexcept;
  NewVolume& operator=(NewVolume&&) = delete;
  ~NewVolume();

  const std::string& identifier() const { return identifier_; }
  const std::filesystem::path& path() const { return path_; }

  // To DATA/jobs/ID, on the disk when this returns.
  Result<void> move_to_jobs();
  void keep() { path_.clear(); }

 private:
  NewVolume(std::filesystem::path data, std::string identifier);

  std::filesystem::path data_;
  std::string identifier_;
  std::filesystem::path path_;  // empty: it stays
};

}  // namespace tesser::platform
