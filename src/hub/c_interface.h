/* The hub's client, and a hub within a process, for other languages: python/tesser/hub loads this as a shared library.
 *
 * Functions that can fail return 0 when done, 1 when the run has failed, 2 for wrong input, as the command's exit
 * codes; tesser_hub_error() then has the message. Threads as in hub/client.h. Options are JSON objects. */
#ifndef TESSER_HUB_C_INTERFACE_H
#define TESSER_HUB_C_INTERFACE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tesser_hub_client tesser_hub_client;
typedef struct tesser_hub_server tesser_hub_server;

/* The message of the last failure on this thread; valid until the next one. */
const char* tesser_hub_error(void);

/* {"hubs": [URL...], "token": "", "job": "", "nonce": "", "rank": 0, "patience_seconds": 60.0, "network": false,
 *  "settings": {as hub/job_settings.h writes them}} */
int tesser_hub_join(const char* options, tesser_hub_client** client);
/* Leaves, unless it has left or was abandoned. */
void tesser_hub_close(tesser_hub_client* client);
/* The other workers shall take it for lost; tesser_hub_close still frees it. */
void tesser_hub_abandon(tesser_hub_client* client);

/* Elements of the wire's type; lives as long as the client. */
void* tesser_hub_gradient(tesser_hub_client* client, int64_t key);
/* After tesser_hub_start. */
float* tesser_hub_weights(tesser_hub_client* client, int64_t key);
void tesser_hub_set_initial(tesser_hub_client* client, int64_t key, const float* values, int64_t count);
int tesser_hub_set_initial_state(tesser_hub_client* client, int64_t key, int tensor, const float* values,
                                 int64_t count);
/* How many updates that state has seen. */
void tesser_hub_set_initial_updates(tesser_hub_client* client, int64_t key, int64_t updates);
/* `step`: where the job is; `is_return`: whether this worker was lost before. */
int tesser_hub_start(tesser_hub_client* client, int64_t* step, int* is_return);
int tesser_hub_push(tesser_hub_client* client, int64_t key);
/* Rows of an embedding's gradient, ascending; `values`: elements of the wire's type, `bytes` of them. */
int tesser_hub_push_rows(tesser_hub_client* client, int64_t key, const int64_t* rows, int64_t count, const void* values,
                         int64_t bytes);
int tesser_hub_push_none(tesser_hub_client* client, int64_t key);
/* As if these tensors had not been pushed in this step, before its commit. */
int tesser_hub_withdraw(tesser_hub_client* client, const int64_t* keys, int64_t count);
/* `numbers`: for each group learning rate, momentum, dampening, weight decay, beta1, beta2, eps. */
int tesser_hub_commit(tesser_hub_client* client, const double* numbers, int64_t groups);
int tesser_hub_wait(tesser_hub_client* client, int64_t key);
int tesser_hub_wait_all(tesser_hub_client* client);
/* For no longer than that; `is_current`: whether the weights are there. */
int tesser_hub_wait_for(tesser_hub_client* client, int64_t key, int64_t milliseconds, int* is_current);
int tesser_hub_read_state(tesser_hub_client* client, int64_t key, int tensor, float* values, int64_t count);
int tesser_hub_read_updates(tesser_hub_client* client, int64_t key, int64_t* updates);
int tesser_hub_leave(tesser_hub_client* client);
/* "gathering", "running" or "ended", as hub number `hub` says; valid until the next call on this thread. NULL: the job
 * has failed, or the hub does not answer. */
const char* tesser_hub_state(tesser_hub_client* client, int64_t hub);
/* How each hub is reached, a line each; valid until the next call on this thread. */
const char* tesser_hub_paths(tesser_hub_client* client);

/* A hub in this process: {"listen": "127.0.0.1:0", "token": "", "processors": "", "pins": false, "hubs": "",
 *  "network": false}; "hubs": as hub.h's other_hubs */
int tesser_hub_serve(const char* options, tesser_hub_server** server);
const char* tesser_hub_url(tesser_hub_server* server); /* lives as long as the server */
void tesser_hub_end(tesser_hub_server* server);

#ifdef __cplusplus
}
#endif

#endif
