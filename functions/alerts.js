// Takes payments { account, amount }; emits an alert when an account spends more than ten times its usual amount.
// What is not a payment never reaches the function: it becomes a dead letter that names what is wrong with it.
export const config = {
  source: 'payments',
  sink: 'alerts',
  key: 'account',
  state: { usual: { ttl: '30d', refresh: 'access' } },
  input: {
    type: 'object',
    required: ['account', 'amount'],
    properties: { account: { type: 'string' }, amount: { type: 'number', minimum: 0 } },
  },
};

stream
  .filter(payment => payment.amount > 0)
  .flatMap((payment, context) => {
    const usual = state.usual[payment.account];
    // An average that forgets: each payment moves it by a tenth.
    state.usual[payment.account] = usual === undefined ? payment.amount : usual * 0.9 + payment.amount * 0.1;
    if (usual === undefined || payment.amount <= usual * 10) return [];
    console.warn(`${payment.account} spent ${payment.amount}, usually ${usual.toFixed(2)}`);
    return [{ account: payment.account, amount: payment.amount, usual, at: context.timestamp }];
  });
